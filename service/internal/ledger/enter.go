package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
)

const selectStanding = `SELECT idempotency_key, envelope_id, body_hash FROM courier_ledger WHERE `

// Enter enters events that came by the queue alone, in tx, unless their idempotency keys are known; and returns
// which of them the keys stand for. It locks the keys in their order, as the intake does, which so is waited for.
func (l *Ledger) Enter(ctx context.Context, tx sqlstore.Conn, arrivals []courier.Arrival) ([]courier.Standing, error) {
	entries := make([]*intake.Entry, 0, len(arrivals))
	for i := range arrivals {
		entries = append(entries, entryOf(&arrivals[i]))
	}
	slices.SortStableFunc(entries, func(a, b *intake.Entry) int {
		return strings.Compare(a.Event.IdempotencyKey, b.Event.IdempotencyKey)
	})
	standings := make([]courier.Standing, len(arrivals))
	if n, err := l.insert(ctx, tx, entries); err != nil || n == len(entries) {
		return standings, err // all are the first
	}
	known, err := l.standing(ctx, tx, entries)
	if err != nil {
		return nil, err
	}
	for i := range arrivals {
		first, ok := known[arrivals[i].Event.IdempotencyKey]
		if !ok { // it was taken at the INSERT
			return nil, fmt.Errorf("the idempotency key %q has expired meanwhile", arrivals[i].Event.IdempotencyKey)
		}
		standings[i] = courier.StandingOf(&arrivals[i], first.envelopeID, first.bodyHash)
	}
	return standings, nil
}

func entryOf(a *courier.Arrival) *intake.Entry {
	return &intake.Entry{
		Event: a.Event, ShipmentID: a.Payload.ShipmentID, BodyHash: a.Event.BodyHash, Envelope: eventing.Envelope{Header: eventing.Header{ID: a.EnvelopeID}},
	}
}

// insert enters what is not known, and returns how many that were.
func (l *Ledger) insert(ctx context.Context, tx sqlstore.Conn, entries []*intake.Entry) (n int, err error) {
	if l.store.Embedded {
		repeats, err := l.insertSQLite(entries, func(args ...any) (int64, error) { return tx.Exec(ctx, insertReceivedSQLite, args...) })
		return len(entries) - len(repeats), err
	}
	rows, err := tx.Exec(ctx, insertReceivedPostgres, columnsOf(entries)...)
	return int(rows), err
}

// first is the event that an idempotency key stands for.
type first struct{ envelopeID, bodyHash string }

func (l *Ledger) standing(ctx context.Context, tx sqlstore.Conn, entries []*intake.Entry) (map[string]first, error) {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Event.IdempotencyKey
	}
	rows, err := tx.Query(ctx, selectStanding+l.store.In("idempotency_key", "$1"), l.store.List(keys))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := make(map[string]first, len(keys))
	for rows.Next() {
		var key string
		var f first
		if err := rows.Scan(&key, &f.envelopeID, &f.bodyHash); err != nil {
			return nil, err
		}
		known[key] = f
	}
	return known, rows.Err()
}
