package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Receiver returns what enters accepted events into the ledger, and into the outbox in the
// same transaction. cfg is the outbox's.
func (l *Ledger) Receiver(cfg eventing.OutboxConfig) intake.Store {
	if l.store.Intake != nil {
		outbox := eventing.NewOutbox(l.store.Intake, cfg)
		return &receiver[pgx.Tx]{outbox, l.enterPostgres, l.store.Postgres.Wake}
	}
	outbox := eventing.NewOutbox(l.store.Events, cfg)
	return &receiver[*sql.Tx]{outbox, l.enterSQLite, func() {}}
}

// receiver implements [intake.Store] with transactions of type Tx.
type receiver[Tx any] struct {
	outbox *eventing.Outbox[Tx]
	// enter enters what is not known, and returns the receipts of what was, by key.
	enter func(ctx context.Context, tx Tx, entries []*intake.Entry) (known map[string]intake.Receipt, err error)
	// wake has the dispatchers of this process look, if they are not those of the outbox.
	wake func()
}

// Receive implements [intake.Store].
func (r *receiver[Tx]) Receive(ctx context.Context, entries []*intake.Entry) ([]intake.Receipt, error) {
	receipts := make([]intake.Receipt, len(entries))
	err := r.outbox.InTx(ctx, func(tx Tx) error {
		known, err := r.enter(ctx, tx, entries)
		if err != nil {
			return fmt.Errorf("enter %d events into the ledger: %w", len(entries), err)
		}
		fresh := make([]eventing.Appendable, 0, len(entries))
		for i := range entries {
			e := entries[i]
			first, repeat := known[e.Event.IdempotencyKey]
			if !repeat {
				first = intake.Receipt{TraceID: e.Event.TraceID, BodyHash: e.BodyHash}
				fresh = append(fresh, e.Envelope)
			}
			receipts[i] = first
		}
		return r.outbox.Append(ctx, tx, fresh...)
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

// complete checks that each of the keys has been found: a row that was there at the INSERT may
// have expired since.
func complete(keys []string, known map[string]intake.Receipt) error {
	if len(known) != len(keys) {
		return fmt.Errorf("%d of %d keys that were known have expired meanwhile", len(keys)-len(known), len(keys))
	}
	return nil
}
