package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/store"
)

const selectKnown = `SELECT idempotency_key, trace_id, body_hash FROM courier_ledger WHERE `

// Receiver returns what enters accepted events into the ledger, and into the outbox in the
// same transaction.
func (l *Ledger) Receiver() intake.Store {
	if l.store.Intake != nil {
		return &hopeful{receiver: newReceiver(l.store.Intake, l.enterPostgres, l.store.Postgres.Wake), enterNew: l.enterNewPostgres}
	}
	r := newReceiver(l.store.Events, l.enterSQLite, func() {})
	return &r
}

// receiver implements [intake.Store] with transactions of type Tx.
type receiver[Tx any] struct {
	store  eventing.OutboxStore[Tx]
	outbox *eventing.Outbox[Tx] // of the store
	enter  enter[Tx]
	// wake has the dispatchers of this process look, if they are not those of the outbox.
	wake func()
}

func newReceiver[Tx any](s eventing.OutboxStore[Tx], enter enter[Tx], wake func()) receiver[Tx] {
	return receiver[Tx]{s, eventing.NewOutbox(s, eventing.OutboxConfig{}), enter, wake}
}

// enter enters what is not known, and returns the receipts of what was, by key.
type enter[Tx any] func(ctx context.Context, tx Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error)

// Receive implements [intake.Store].
func (r *receiver[Tx]) Receive(ctx context.Context, entries []*intake.Entry) ([]intake.Receipt, error) {
	return r.receive(ctx, entries, r.enter)
}

func (r *receiver[Tx]) receive(ctx context.Context, entries []*intake.Entry, enter enter[Tx]) ([]intake.Receipt, error) {
	receipts := make([]intake.Receipt, len(entries))
	err := r.outbox.InTx(ctx, func(tx Tx) error {
		known, err := enter(ctx, tx, entries)
		if err != nil {
			return fmt.Errorf("enter %d events into the ledger: %w", len(entries), err)
		}
		fresh := make([]eventing.OutboxRow, 0, len(entries))
		for i := range entries {
			e := entries[i]
			first, repeat := known[e.Event.IdempotencyKey]
			if !repeat {
				first = intake.Receipt{TraceID: e.Event.TraceID, BodyHash: e.BodyHash}
				fresh = append(fresh, e.Row)
			}
			receipts[i] = first
		}
		return r.store.AppendRows(ctx, tx, fresh)
	})
	if err != nil {
		if store.Momentary(err) {
			err = fmt.Errorf("%w: %w", intake.ErrUnavailable, err)
		}
		return nil, err
	}
	r.wake()
	return receipts, nil
}

// hopeful is a receiver on PostgreSQL that first takes a group's events for new, as most are: that is one round trip, with the
// commit, instead of two. If one was known, nothing of it has happened; if the connection broke, all of it may have. Either
// way the group is received as it is then, and what the ledger has already is recognised.
type hopeful struct {
	receiver[pgx.Tx]

	enterNew enter[pgx.Tx]
	wary     atomic.Int32 // groups for which there is no hope, since it was in vain for one
}

// waryGroups bounds what repeats cost: one group in so many is tried in vain at most.
const waryGroups = 16

// Receive implements [intake.Store].
func (h *hopeful) Receive(ctx context.Context, entries []*intake.Entry) ([]intake.Receipt, error) {
	if h.wary.Add(-1) >= 0 {
		return h.receiver.Receive(ctx, entries)
	}
	h.wary.Store(0)
	receipts, err := h.receive(ctx, entries, h.enterNew)
	if inLedger(err) || errors.Is(err, intake.ErrUnavailable) && ctx.Err() == nil {
		h.wary.Store(waryGroups)
		return h.receiver.Receive(ctx, entries)
	}
	return receipts, err
}

// inLedger reports whether PostgreSQL says that a row of the ledger is there already.
func inLedger(err error) bool {
	const uniqueViolation = "23505"
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation && pg.TableName == "courier_ledger"
}

// complete checks that each of the keys has been found: a row that was there at the INSERT may
// have expired since.
func complete(keys []string, known map[string]intake.Receipt) error {
	if len(known) != len(keys) {
		return fmt.Errorf("%d of %d keys that were known have expired meanwhile", len(keys)-len(known), len(keys))
	}
	return nil
}
