package gateway

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// column is where an SQL database has a field of the specification.
type column struct{ entity, field, table, column string }

var columns = []column{
	{"ProcessedEvent", "idempotencyKey", "courier_ledger", "idempotency_key"},
	{"ProcessedEvent", "eventId", "courier_ledger", "event_id"},
	{"ProcessedEvent", "eventType", "courier_ledger", "event_type"},
	{"ProcessedEvent", "status", "courier_ledger", "status"},
	{"ProcessedEvent", "attemptCount", "courier_ledger", "attempt_count"},
	{"ProcessedEvent", "lastErrorCode", "courier_ledger", "last_error_code"},
	{"ProcessedEvent", "lastErrorMessage", "courier_ledger", "last_error_message"},
	{"ProcessedEvent", "firstSeenAt", "courier_ledger", "first_seen_at"},
	{"ProcessedEvent", "updatedAt", "courier_ledger", "updated_at"},
	{"ProcessedEvent", "expiresAt", "courier_ledger", "expires_at"},
	{"ActiveShipment", "shipmentId", "active_shipments", "shipment_id"},
	{"ActiveShipment", "orderId", "active_shipments", "order_id"},
	{"ActiveShipment", "currentState", "active_shipments", "current_state"},
	{"ActiveShipment", "lastEventId", "active_shipments", "last_event_id"},
	{"ActiveShipment", "lastEventType", "active_shipments", "last_event_type"},
	{"ActiveShipment", "lastEventAt", "active_shipments", "last_event_at"},
	{"ActiveShipment", "metadata", "active_shipments", "metadata"},
	{"ActiveShipment", "createdAt", "active_shipments", "created_at"},
	{"ActiveShipment", "updatedAt", "active_shipments", "updated_at"},
	// A dead letter has the envelope's id; of the courier's the ledger knows, and the payload, which is the envelope.
	{"DeadLetterEvent", "eventId", "courier_ledger", "envelope_id"},
	{"DeadLetterEvent", "eventId", "dead_letter_consumers", "event_id"},
	{"DeadLetterEvent", "idempotencyKey", "courier_ledger", "idempotency_key"},
	{"DeadLetterEvent", "eventType", "dead_letter_events", "event_type"},
	{"DeadLetterEvent", "terminalReasonCode", "dead_letter_consumers", "reason_code"},
	{"DeadLetterEvent", "terminalReasonMessage", "dead_letter_consumers", "reason_message"},
	{"DeadLetterEvent", "attemptCount", "dead_letter_consumers", "attempt_count"},
	{"DeadLetterEvent", "attemptHistory", "dead_letter_consumers", "attempt_history"},
	{"DeadLetterEvent", "payloadSnapshot", "dead_letter_events", "payload"},
	{"DeadLetterEvent", "reviewStatus", "dead_letter_consumers", "status"},
	{"DeadLetterEvent", "createdAt", "dead_letter_consumers", "created_at"},
	{"DeadLetterEvent", "expiresAt", "dead_letter_consumers", "expires_at"},
}

// SQL databases have the fields of the specification in columns of the same names, in snake_case.
func TestConformanceColumns(t *testing.T) {
	t.Parallel()
	for _, db := range []struct {
		name, columns string
		open          func(t *testing.T) string
	}{
		{"postgres", `SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1`, func(t *testing.T) string { return testserver.PostgresURL(t) }},
		{"sqlite", `SELECT name FROM pragma_table_info($1)`, func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "waybill.db") }},
	} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			s := storetest.Open(t, db.open(t))
			if _, err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, c := range columns {
				t.Run(c.entity+"/"+c.field, func(t *testing.T) {
					there, err := texts(t.Context(), s.Read, db.columns, c.table)
					if err != nil || !slices.Contains(there, c.column) {
						t.Errorf("%s has no column %s: %v, %v", c.table, c.column, there, err)
					}
				})
			}
		})
	}
}
