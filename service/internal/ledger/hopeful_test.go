package ledger

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// A group is taken for new, but not for a while after one that was not.
func TestHope(t *testing.T) {
	t.Parallel()
	s := storetest.Migrated(t, testserver.PostgresURL(t))
	h := New(s, time.Hour).Receiver().(*hopeful)
	hopes, looks := 0, 0
	counted := func(n *int, enter enter[pgx.Tx]) enter[pgx.Tx] {
		return func(ctx context.Context, tx pgx.Tx, entries []*intake.Entry) (map[string]intake.Receipt, error) {
			*n++
			return enter(ctx, tx, entries)
		}
	}
	h.enterNew, h.enter = counted(&hopes, h.enterNew), counted(&looks, h.enter)
	event := 0
	receive := func(what string, n, wantHopes, wantLooks int) {
		t.Helper()
		for range n {
			event++
			key := fmt.Sprint("key ", event)
			if what == "a repeat" {
				key = "key 1"
			}
			e := courier.Event{Source: "s", IdempotencyKey: key, TraceID: fmt.Sprint("trace ", event), OccurredAt: time.Now(), ReceivedAt: time.Now()}
			envelope := eventing.Envelope{Header: eventing.Header{ID: courier.EventID("s", key), Type: "t"}, Payload: []byte(`{}`)}
			row, err := eventing.OutboxConfig{}.Row(t.Context(), envelope)
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Receive(t.Context(), []*intake.Entry{{Event: e, BodyHash: "hash", Envelope: envelope, Row: row}})
			if err != nil || (got[0].TraceID == e.TraceID) != (what == "new") {
				t.Errorf("%s: %v, %v", what, got, err)
			}
		}
		if hopes != wantHopes || looks != wantLooks {
			t.Errorf("after %d times %s: hoped %d times, want %d; looked %d times, want %d", n, what, hopes, wantHopes, looks, wantLooks)
		}
		hopes, looks = 0, 0
	}
	receive("new", 3, 3, 0)
	receive("a repeat", 1, 1, 1)
	receive("new", waryGroups, 0, waryGroups)
	receive("new", 1, 1, 0)
	receive("a repeat", waryGroups+1, 1, waryGroups+1)
	receive("a repeat", 1, 1, 1)
	receive("new", waryGroups, 0, waryGroups)
	if _, err := s.Read.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	receive("new", 1, 1, 1) // its connection was broken
}
