package middleware_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBusy = errors.New("busy")

// call runs a handler behind one middleware on a message with the given metadata.
func call(mw message.HandlerMiddleware, metadata message.Metadata, h message.HandlerFunc) ([]*message.Message, error) {
	m := message.NewMessage("m1", nil)
	for k, v := range metadata {
		m.Metadata.Set(k, v)
	}
	m.SetContext(context.Background())
	return mw(h)(m)
}

func produce(ids ...string) message.HandlerFunc {
	return func(*message.Message) (produced []*message.Message, err error) {
		for _, id := range ids {
			produced = append(produced, message.NewMessage(id, nil))
		}
		return produced, nil
	}
}
