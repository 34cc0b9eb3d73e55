package memstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing/eventingtest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	eventingtest.TestStore(t, backend)
}

func BenchmarkStore(b *testing.B) { eventingtest.BenchmarkStore(b, backend) }

var backend = eventingtest.Backend[*Tx]{
	Open:         func(testing.TB) eventingtest.Database[*Tx] { return database{New()} },
	Capabilities: eventingtest.Capabilities{BinaryPayload: true},
}

// database is what the suite needs to see and do beside the store's methods.
type database struct{ *Store }

func (database) Effect(_ context.Context, tx *Tx, consumer, eventID string) error {
	tx.Append("effects", consumer+" "+eventID)
	return nil
}

func (db database) Effects(context.Context) ([]eventingtest.Effect, error) {
	var effects []eventingtest.Effect
	for _, e := range db.List("effects") {
		consumer, eventID, _ := strings.Cut(e, " ")
		effects = append(effects, eventingtest.Effect{Consumer: consumer, EventID: eventID})
	}
	return effects, nil
}

func (db database) InsertByHand(ctx context.Context, id, eventID, eventType string, payload []byte) error {
	return db.Store.InsertByHand(ctx, id, eventID, eventType, string(payload))
}

func (db database) ReplayBySQL(ctx context.Context, eventID string) (int, error) {
	e, ok := db.DeadLetterEvent(eventID)
	if !ok {
		return 0, nil
	}
	return 1, db.InsertByHand(ctx, eventID+"-replay", eventID, e.EventType, e.Payload)
}

func (db database) OutboxStatus(_ context.Context, eventID string) ([]string, error) {
	return db.ofRows(eventID, func(row *outboxRow) string { return string(row.status) }), nil
}

func (db database) RoutingVersions(_ context.Context, eventID string) ([]string, error) {
	return db.ofRows(eventID, func(row *outboxRow) string { return row.version }), nil
}

// ofRows returns something of each row of an event, in the order of their Seq.
func (db database) ofRows(eventID string, something func(*outboxRow) string) (values []string) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	var rows []*outboxRow
	for _, row := range db.outbox.rows {
		if row.EventID == eventID {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b *outboxRow) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, row := range rows {
		values = append(values, something(row))
	}
	return values
}
