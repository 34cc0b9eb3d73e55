package middleware_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// topic is a poison topic.
type topic struct {
	messages []*message.Message
	err      error
}

func (p *topic) Publish(name string, messages ...*message.Message) error {
	if p.err == nil && name == "poison" {
		p.messages = append(p.messages, messages...)
	}
	return p.err
}

func (p *topic) Close() error { return nil }

func deadLetter(t *testing.T, p *topic) message.HandlerMiddleware {
	t.Helper()
	mw, err := middleware.DeadLetter(middleware.DeadLetterConfig{Publisher: p, Topic: "poison", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return mw
}

func TestDeadLetterTakesPermanentErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err      error
		poisoned eventing.ReasonCode
	}{
		"none":                               {nil, ""},
		"one that may end":                   {errBusy, ""},
		"a snooze":                           {eventing.RetryAfter(1, errBusy), ""},
		"for good":                           {errRejected, eventing.ReasonRejected},
		"for good, with a reason of its own": {eventing.PermanentWithReason("NO_SUCH_CUSTOMER", errBusy), "NO_SUCH_CUSTOMER"},
		"a shutdown of something else":       {context.Canceled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p topic
			produced, err := call(deadLetter(t, &p), message.Metadata{"event_id": "e1"}, func(m *message.Message) ([]*message.Message, error) {
				clear(m.Metadata)
				produced, _ := produce("p1")(m)
				return produced, c.err
			})
			if c.poisoned == "" {
				if !errors.Is(err, c.err) || len(p.messages) != 0 || (len(produced) != 0) != (c.err == nil) {
					t.Errorf("nothing is a dead letter: %v, %v, %v", produced, err, p.messages)
				}
				return
			}
			if err != nil || len(p.messages) != 1 || produced != nil {
				t.Fatalf("it is one, and nothing that the handler produced: %v, %v, %v", produced, err, p.messages)
			}
			want := message.Metadata{
				"event_id": "e1", "reason_poisoned": c.err.Error(), "topic_poisoned": "", "handler_poisoned": "", "subscriber_poisoned": "",
				middleware.MetadataReasonCode: string(c.poisoned),
			}
			if m := p.messages[0]; m.UUID != "m1" || !maps.Equal(m.Metadata, want) {
				t.Errorf("it is the message as it came: %s %v", m.UUID, m.Metadata)
			}
		})
	}
}

// Neither is acked: a shutdown, and what could not be published.
func TestDeadLetterLosesNothing(t *testing.T) {
	t.Parallel()
	var p topic
	ctx, stop := context.WithCancel(context.Background())
	m := message.NewMessage("m1", nil)
	m.SetContext(ctx)
	rejects := func(*message.Message) ([]*message.Message, error) { return nil, errRejected }
	_, err := deadLetter(t, &p)(func(m *message.Message) ([]*message.Message, error) { stop(); return rejects(m) })(m)
	if !errors.Is(err, errRejected) || len(p.messages) != 0 {
		t.Errorf("when all is stopping, the event is delivered again: %v, %v", err, p.messages)
	}
	p.err = errors.New("the poison topic is down")
	m.SetContext(context.Background())
	if _, err := deadLetter(t, &p)(rejects)(m); !errors.Is(err, p.err) || !errors.Is(err, errRejected) {
		t.Errorf("the error says both: %v", err)
	}
	if len(m.Metadata) != 0 {
		t.Errorf("the message is left as it was: %v", m.Metadata)
	}
}

func TestDeadLetterBoundsTheReason(t *testing.T) {
	t.Parallel()
	var p topic
	_, err := call(deadLetter(t, &p), nil, func(*message.Message) ([]*message.Message, error) {
		return nil, eventing.Permanent(errors.New("\x00\xff" + strings.Repeat("é", 1<<20)))
	})
	if err != nil || len(p.messages) != 1 {
		t.Fatal(err, p.messages)
	}
	if text := p.messages[0].Metadata.Get("reason_poisoned"); len(text) > 1024 || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		t.Errorf("the reason has %d bytes", len(text))
	}
}

func TestDeadLetterNeedsATopic(t *testing.T) {
	t.Parallel()
	for _, cfg := range []middleware.DeadLetterConfig{{}, {Topic: "poison"}, {Publisher: &topic{}}} {
		if _, err := middleware.DeadLetter(cfg); err == nil {
			t.Errorf("%+v must be refused", cfg)
		}
	}
}
