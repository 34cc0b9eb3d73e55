package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Succeed implements [eventing.ConsumerStore]. Effect and Finish get a [*Tx]. As
// writers take turns, nobody else writes while Effect runs.
func (s *Store) Succeed(ctx context.Context, r eventing.Success) error {
	return s.write(ctx, func(tx *Tx) error {
		if r.Effect != nil {
			if err := r.Effect(ctx, tx); err != nil {
				return err
			}
		}
		if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
			return err
		}
		if err := tx.concludable(r.Run); err != nil {
			return err
		}
		tx.inbox.put(targetOf(r.Delivery), inboxRow{until: r.InboxUntil, generation: r.Generation})
		tx.processed(r.Run, r.Now, r.DeadLetterUntil)
		if r.Finish != nil {
			if err := r.Finish(ctx, tx); err != nil {
				return err
			}
		}
		return eventing.Fault(ctx, eventing.FaultConcluding)
	})
}

// concludable checks that nobody else has concluded the run or taken it over.
func (tx *Tx) concludable(r eventing.Run) error {
	if err := tx.rely(r.Lease); err != nil {
		return err
	}
	if processed := tx.inbox.get(targetOf(r.Delivery)); processed != nil && (!r.Force || processed.generation >= r.Generation) {
		return eventing.ErrConflict
	}
	row := tx.deliveries.get(targetOf(r.Delivery))
	asFound := row == nil
	if r.Found != eventing.StateNone {
		asFound = row != nil && row.state == r.Found && row.Generation == r.Generation && row.claimToken == r.ClaimToken
	}
	if !asFound {
		return eventing.ErrConflict
	}
	return nil
}

// processed ends the trouble that a delivery may have been in.
func (tx *Tx) processed(r eventing.Run, now, deadLetterUntil time.Time) {
	t := targetOf(r.Delivery)
	tx.deliveries.remove(t)
	if dl, ok := tx.deadLetter(t); ok && dl.open() {
		dl.Status, dl.Resolution, dl.UpdatedAt = eventing.StatusClosed, eventing.Resolved, now
		if !deadLetterUntil.IsZero() {
			dl.ExpiresAt = deadLetterUntil
		}
		tx.putDeadLetter(dl)
	}
}

// Fail implements [eventing.ConsumerStore].
func (s *Store) Fail(ctx context.Context, f eventing.Failure) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := tx.concludable(f.Run); err != nil {
			return err
		}
		if row := tx.deliveries.get(targetOf(f.Delivery)); row != nil && row.attempts != f.Run.Attempts {
			return eventing.ErrConflict
		}
		tx.recordFailure(f)
		switch f.State {
		case eventing.StateDead:
			tx.die(deathOf(f), f.Attempts-f.PriorAttempts, f.Now)
			tx.failOutboxRow(f.OutboxSeq)
		default:
			tx.keepDeadLetter(f)
		}
		return finish(ctx, tx, f)
	})
}

// recordFailure stores the delivery, which is then nobody's claim any more.
func (tx *Tx) recordFailure(f eventing.Failure) {
	t := targetOf(f.Delivery)
	row := delivery{
		Delivery: f.Delivery, state: f.State, attempts: f.Attempts, priorAttempts: f.PriorAttempts, history: f.History, dueAt: f.DueAt,
	}
	if known := tx.deliveries.get(t); known != nil {
		row.position = known.position
	} else {
		row.position = tx.nextPosition()
	}
	tx.deliveries.put(t, row)
}

// keepDeadLetter pushes the expiry of a replayed dead letter out while the replay
// is being retried.
func (tx *Tx) keepDeadLetter(f eventing.Failure) {
	dl, ok := tx.deadLetter(targetOf(f.Delivery))
	if ok && dl.open() && dl.ExpiresAt.Before(f.DeadLetterUntil) {
		dl.ExpiresAt = f.DeadLetterUntil
		tx.putDeadLetter(dl)
	}
}

func deathOf(f eventing.Failure) deadLetter {
	return deadLetter{DeadLetter: eventing.DeadLetter{
		EventID: f.EventID, Consumer: f.Consumer, EventType: f.EventType, Stage: f.Stage, Reason: f.Reason, Message: f.Message,
		AttemptCount: f.Attempts, History: f.History, OrderingKey: f.OrderingKey, Generation: f.Generation,
		Payload: f.Payload, ExpiresAt: f.DeadLetterUntil,
	}}
}

// failOutboxRow takes back that the row was sent with success. A row that is
// pending still is told apart when it is settled.
func (tx *Tx) failOutboxRow(seq int64) {
	for id := range tx.store.outbox.rows {
		if row := tx.outbox.get(id); row != nil && row.Seq == seq && row.status == sent {
			changed := *row
			changed.status = failed
			tx.outbox.put(id, changed)
			return
		}
	}
}

func finish(ctx context.Context, tx *Tx, f eventing.Failure) error {
	if f.Finish != nil {
		if err := f.Finish(ctx, tx); err != nil {
			return err
		}
	}
	return eventing.Fault(ctx, eventing.FaultFailing)
}

// Quarantine implements [eventing.ConsumerStore].
func (s *Store) Quarantine(ctx context.Context, f eventing.Failure) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := tx.rely(f.Lease); err != nil {
			return err
		}
		if known, ok := tx.deadLetter(targetOf(f.Delivery)); ok && known.Status != eventing.StatusReplayed {
			return nil // the broker delivers it once more
		}
		tx.quarantine(f)
		tx.failOutboxRow(f.OutboxSeq)
		return finish(ctx, tx, f)
	})
}

// quarantine opens a dead letter without a delivery, whose attempts it counts
// itself.
func (tx *Tx) quarantine(f eventing.Failure) {
	dl := deathOf(f)
	if known, ok := tx.deadLetter(dl.target()); ok {
		dl.AttemptCount, dl.History = goOn(known.DeadLetter, f.History)
	}
	tx.die(dl, f.Attempts, f.Now)
}

// maxHistory is how many attempts are kept, as everywhere.
const maxHistory = 100

// goOn appends attempts to the history of a known dead letter, numbered onwards.
func goOn(known eventing.DeadLetter, more []eventing.Attempt) (count int, history []eventing.Attempt) {
	count, history = known.AttemptCount, slices.Clone(known.History)
	for _, a := range more {
		count++
		a.Attempt = count
		history = append(history, a)
	}
	return count, history[max(0, len(history)-maxHistory):]
}
