package middleware_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/middleware"
)

// logged runs a handler behind Logging and returns its record.
func logged(t *testing.T, ctx context.Context, metadata message.Metadata, h message.HandlerFunc) (record map[string]any, err error) {
	t.Helper()
	var out bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m := message.NewMessage("m1", []byte("a secret"))
	m.Metadata = metadata
	m.SetContext(ctx)
	_, err = middleware.Recover(middleware.Logging(logger)(h))(m)
	if err := json.Unmarshal(out.Bytes(), &record); err != nil {
		t.Fatalf("one record: %v\n%s", err, &out)
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("payloads are not logged")
	}
	return record, err
}

func TestLogging(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(context.Background())
	stop()
	for name, c := range map[string]struct {
		ctx    context.Context
		err    error
		level  string
		reason any
	}{
		"success":                 {context.Background(), nil, "DEBUG", nil},
		"failure":                 {context.Background(), errBusy, "WARN", "HANDLER_ERROR"},
		"failure for good":        {context.Background(), errRejected, "ERROR", "REJECTED"},
		"panic that is recovered": {context.Background(), &eventing.PanicError{Value: "boom", Stack: []byte("where")}, "ERROR", "HANDLER_PANIC"},
		"time that ran out":       {context.Background(), context.DeadlineExceeded, "WARN", "TIMEOUT"},
		"shutdown":                {stopped, context.Canceled, "DEBUG", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				metadata := message.Metadata{"event_id": "e1", "event_type": "OrderPlaced", "correlation_id": "c"}
				record, err := logged(t, c.ctx, metadata, func(m *message.Message) ([]*message.Message, error) {
					clear(m.Metadata)
					<-time.After(time.Second)
					return nil, c.err
				})
				if !errors.Is(err, c.err) {
					t.Errorf("the error goes on: %v", err)
				}
				if record["level"] != c.level || record["event_id"] != "e1" || record["event_type"] != "OrderPlaced" || record["correlation_id"] != "c" ||
					record["message_uuid"] != "m1" || record["took"] != float64(time.Second) || record["reason"] != c.reason {
					t.Errorf("the record is %v", record)
				}
				if _, ok := record["error"]; ok != (c.err != nil) {
					t.Errorf("the record has the error, if there is one: %v", record)
				}
				if stack, ok := record["stack"]; ok && stack != "where" {
					t.Errorf("the stack is that of the panic: %v", stack)
				}
			})
		})
	}
}

// Where nothing inside has recovered a panic, it is logged on its way.
func TestLoggingOfAPanic(t *testing.T) {
	t.Parallel()
	record, err := logged(t, context.Background(), message.Metadata{}, func(*message.Message) ([]*message.Message, error) { panic("boom") })
	var panicked *eventing.PanicError
	stack, _ := record["stack"].(string)
	if !errors.As(err, &panicked) || record["level"] != "ERROR" || record["event_id"] != "m1" || !strings.HasPrefix(stack, "panic(") || !strings.Contains(stack, "logging_test.go") {
		t.Errorf("%v, %v", err, record)
	}
}
