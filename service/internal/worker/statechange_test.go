package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

var update = flag.Bool("update", false, "write the golden file anew")

// What others find in the queue, metadata included, is as it was when they were written.
func TestStateChangeMessage(t *testing.T) {
	t.Parallel()
	occurred := time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	cause := eventing.Header{
		ID: courier.EventID("courier-x", "courier-x:evt_123"), Type: "shipment.status.updated", OccurredAt: occurred, CorrelationID: "4bf92f3577b34da6a3ce929d0e0e4736",
		AggregateType: aggregateType, AggregateID: "shp_456",
	}
	arrival := courier.Arrival{
		EnvelopeID: cause.ID, Payload: courier.Payload{ShipmentID: "shp_456", Status: "out <for> delivery"},
		Event: courier.Event{EventID: "evt_123", EventType: cause.Type, OccurredAt: occurred, Source: "courier-x"},
	}
	effect := courier.Effect{Outcome: courier.OutcomeApplied, Previous: "in_transit", Current: "out <for> delivery", OrderID: "ord_789"}
	ctx := eventing.WithTraceContext(context.Background(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "")
	row, err := stateChangeRow(ctx, cause, arrival, effect, occurred.Add(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	again, err := stateChangeRow(ctx, cause, arrival, effect, occurred.Add(time.Hour))
	if err != nil || again.ID != row.ID {
		t.Errorf("told again it is %s, not %s: %v", again.ID, row.ID, err)
	}
	if row.Consumer != StateQueue || row.OrderingKey != cause.OrderKey() {
		t.Errorf("the row is for %q, its key %q", row.Consumer, row.OrderingKey)
	}
	e, err := eventing.DecodeEnvelope(row.Payload)
	if err != nil {
		t.Fatal(err)
	}
	m, err := eventing.PayloadCodec{}.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(struct {
		Metadata map[string]string `json:"metadata"`
		Payload  json.RawMessage   `json:"payload"`
	}{m.Metadata, json.RawMessage(m.Payload)}); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/state-change.golden"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s", got.Bytes(), want)
	}
}
