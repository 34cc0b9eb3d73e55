package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Arrive implements [eventing.ConsumerStore]. Unless it parks, it only reads, and
// does not wait for the open transaction.
func (s *Store) Arrive(ctx context.Context, d eventing.Delivery, lease *eventing.Lease, _ time.Time) (eventing.Decision, eventing.Run, error) {
	var decision eventing.Decision
	var run eventing.Run
	look := func(tx *Tx) {
		f := tx.found(d)
		decision = eventing.Decide(d, f)
		run = eventing.Run{
			Delivery: d, Found: f.State, Attempts: f.Attempts, PriorAttempts: f.PriorAttempts, History: f.History, Lease: lease,
		}
	}
	err := s.read(ctx, look)
	if err != nil || decision != eventing.DecidePark {
		return decision, run, err
	}
	err = s.write(ctx, func(tx *Tx) error {
		if look(tx); decision != eventing.DecidePark {
			return nil // what it would have waited for is gone
		}
		if err := tx.rely(lease); err != nil {
			return err
		}
		tx.park(d)
		return eventing.Fault(ctx, eventing.FaultParking)
	})
	return decision, run, err
}

// found reads what the arrival table needs.
func (tx *Tx) found(d eventing.Delivery) eventing.Found {
	t := targetOf(d)
	var f eventing.Found
	if processed := tx.inbox.get(t); processed != nil {
		f.Processed, f.InboxGeneration = true, processed.generation
	}
	dl, died := tx.deadLetter(t)
	if died {
		f.Discarded = dl.Resolution == eventing.Discarded
		f.Replayed = dl.Status == eventing.StatusReplayed
		f.DeadGeneration = dl.Generation
	}
	row := tx.deliveries.get(t)
	switch {
	case row != nil:
		f.State, f.Generation = row.state, row.Generation
		f.Attempts, f.PriorAttempts, f.History = row.attempts, row.priorAttempts, slices.Clone(row.history)
	case died && d.Generation > 0: // forced, or it died before it became a delivery; its history goes on
		f.Attempts, f.PriorAttempts, f.History = dl.AttemptCount, dl.AttemptCount, slices.Clone(dl.History)
	}
	if d.OrderingKey == "" {
		return f
	}
	if q := tx.store.lanes[laneOf(d)]; len(q) > 0 {
		f.KeyBusy = row == nil || len(q) > 1
		f.Ahead = row != nil && q[0].n < row.position
	}
	return f
}

// park stores a delivery behind the others of its key. A dead one that is
// replayed out of turn has its place already.
func (tx *Tx) park(d eventing.Delivery) {
	row := delivery{}
	if known := tx.deliveries.get(targetOf(d)); known != nil {
		row = *known
	} else {
		row.position = tx.nextPosition()
	}
	row.Delivery, row.state = d, eventing.StateParked
	tx.deliveries.put(targetOf(d), row)
}

func (tx *Tx) nextPosition() int64 {
	tx.store.lastPosition++
	return tx.store.lastPosition
}
