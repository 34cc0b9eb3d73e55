//go:build unix

package soak

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
)

// worker makes a worker: a router with the ledger, an ordered consumer.
func (s spec) worker(w *witness, tries *pgxpool.Pool, subscriber message.Subscriber) (*router.Router, error) {
	var store eventing.ConsumerStore = w
	if s.Unchecked {
		store = unchecked{w}
	}
	r, err := router.New(router.Config{
		Store: store, Subscriber: subscriber, Holder: s.Holder, LeaseTTL: s.LeaseTTL, CloseTimeout: 5 * time.Second, Logger: logger(),
	})
	if err != nil {
		return nil, err
	}
	err = r.AddConsumer(router.Consumer{
		Name: "ledger", Topic: s.Topics + "ledger",
		Policy: eventing.Policy{Ordered: true, Concurrency: 32, Retry: eventing.RetryPolicy{Base: 50 * time.Millisecond}},
	})
	l := ledger{witness: w, tries: tries}
	if s.Outside {
		return r, errors.Join(err, router.Handle(r, "ledger", l.handleOutside, router.On("*")))
	}
	return r, errors.Join(err, router.HandleTx(r, "ledger", l.handle, router.On("*")))
}

// ledger is the handler. The transaction that has an effect takes a place behind those
// of all earlier ones of its key, whose counter it locks: places are in the order of
// the commits.
type ledger struct {
	witness *witness
	tries   *pgxpool.Pool // of its own: who waits for another connection of one pool with one in hand may do so for ever
}

const (
	ledgerTables = `
CREATE TABLE places (key text PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE effects (key text, place bigint, event_id text NOT NULL, worker text NOT NULL, PRIMARY KEY (key, place));
CREATE TABLE tries (event_id text PRIMARY KEY)`

	effect = `
WITH place AS (
	INSERT INTO places (key, last) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET last = places.last + 1 RETURNING last
) INSERT INTO effects (key, place, event_id, worker) SELECT $1, last, $2, $3 FROM place`
)

var (
	errDamaged = errors.New("the parcel is damaged")
	errRefused = errors.New("the parcel is refused the first time")
)

// handle has an effect. The first worker to try a damaged parcel is stopped before,
// knowing nothing; others know that it is damaged.
func (l ledger) handle(ctx context.Context, tx pgx.Tx, e eventing.Event[note]) error {
	if e.Type != parcel {
		first, err := l.tries.Exec(ctx, `INSERT INTO tries (event_id) VALUES ($1) ON CONFLICT DO NOTHING`, e.ID)
		switch again := first.RowsAffected() == 0; {
		case err != nil:
			return err
		case e.Type == retried && !again:
			return errRefused
		case e.Type == damaged && again:
			return eventing.Permanent(errDamaged)
		case e.Type == damaged:
			if err := l.witness.stop(report{Event: e.ID}); err != nil {
				return err
			}
		}
	}
	_, err := tx.Exec(ctx, effect, e.OrderingKey, e.ID, l.witness.spec.Holder)
	return err
}

// handleOutside has the effect in a transaction of its own.
func (l ledger) handleOutside(ctx context.Context, e eventing.Event[note]) error {
	return l.witness.InTx(ctx, func(tx pgx.Tx) error { return l.handle(ctx, tx, e) })
}

// Succeed tells what becomes of damaged parcels.
func (w *witness) Succeed(ctx context.Context, s eventing.Success) error {
	err := w.Store.Succeed(ctx, s)
	if s.EventType == damaged {
		w.tell(report{Event: s.EventID, Concluded: err == nil, Refused: errors.Is(err, eventing.ErrLeaseLost)})
	}
	return err
}

// unchecked is a store that does not check leases.
type unchecked struct{ *witness }

func (s unchecked) Arrive(ctx context.Context, d eventing.Delivery, _ *eventing.Lease, now time.Time) (eventing.Decision, eventing.Run, error) {
	return s.witness.Arrive(ctx, d, nil, now)
}

func (s unchecked) Succeed(ctx context.Context, r eventing.Success) error {
	r.Lease = nil
	return s.witness.Succeed(ctx, r)
}

func (s unchecked) Fail(ctx context.Context, f eventing.Failure) error {
	f.Lease = nil
	return s.witness.Fail(ctx, f)
}
