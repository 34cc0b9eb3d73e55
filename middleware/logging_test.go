package middleware_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/middleware"
)

func TestLogging(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		level string
	}{
		"success": {nil, "DEBUG"},
		"failure": {errBusy, "WARN"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			logger := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
			_, err := call(middleware.Logging(logger), message.Metadata{"event_type": "OrderPlaced", "correlation_id": "c"},
				func(m *message.Message) ([]*message.Message, error) {
					m.Payload = []byte("a secret")
					return nil, c.err
				})
			if !errors.Is(err, c.err) {
				t.Errorf("the error goes on: %v", err)
			}
			var record map[string]any
			if err := json.Unmarshal(out.Bytes(), &record); err != nil {
				t.Fatalf("one record: %v\n%s", err, &out)
			}
			if record["level"] != c.level || record["event_id"] != "m1" || record["event_type"] != "OrderPlaced" || record["correlation_id"] != "c" {
				t.Errorf("the record names the message: %v", record)
			}
			if _, ok := record["error"]; ok != (c.err != nil) {
				t.Errorf("the record has the error, if there is one: %v", record)
			}
			if strings.Contains(out.String(), "secret") {
				t.Error("payloads are not logged")
			}
		})
	}
}
