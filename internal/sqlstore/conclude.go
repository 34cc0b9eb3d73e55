package sqlstore

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
)

// The primary key stops a concurrent twin: its insert waits for this transaction
// and then inserts nothing or, where [orNothing] is left out, fails.
const (
	intoInbox = `
INSERT INTO processed_events (event_id, consumer_name, processed_at, expires_at, generation) VALUES ($1, $2, $3, $4, $5)`
	insertInbox = intoInbox + orNothing
	orNothing   = `
ON CONFLICT (event_id, consumer_name) DO NOTHING`
)

// A forced run goes past what earlier ones have left; its twin waits for this transaction, too,
// and then finds its own generation.
const insertForced = intoInbox + `
ON CONFLICT (event_id, consumer_name) DO UPDATE SET processed_at = excluded.processed_at, expires_at = excluded.expires_at, generation = excluded.generation
WHERE processed_events.generation < excluded.generation`

// Succeed implements [eventing.ConsumerStore].
func (s *Store) Succeed(ctx context.Context, r eventing.Success) error {
	handled := false
	err := InTx(ctx, s.db, func(tx Tx) error { // a handler may take its time
		if r.Effect != nil {
			if err := r.Effect(ctx, tx.Raw()); err != nil {
				return err
			}
			handled = true
		}
		if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
			return err
		}
		return s.concludeWith(ctx, tx, r.Finish, s.successSteps(r)...)
	})
	if handled && s.d.Broken(err) {
		return fmt.Errorf("%w: %w", eventing.ErrBrokenTx, err)
	}
	return err
}

// successSteps record a success: the lease holds; a replay's dead letter is locked before anything else of it, as those do who
// act on dead letters; the inbox row is new; and the delivery row, which goes, is as it was found.
func (s *Store) successSteps(r eventing.Success) (steps []step) {
	if r.Lease != nil {
		steps = append(steps, s.leaseStep(r.Lease))
	}
	if r.Generation > 0 {
		steps = append(steps, s.lockReplayed(r.Run))
	}
	statement := insertInbox
	if r.Force {
		statement = insertForced
	}
	elsewhere := func() error { return conflict(r.Run) }
	steps = append(steps, s.change(statement, r.EventID, r.Consumer, s.time(r.Now), s.time(r.InboxUntil), r.Generation).must(some, elsewhere))
	if r.Found == eventing.StateNone { // what another has begun is waited for by the insert: so the look comes after it
		steps = append(steps, s.look(anyDelivery, r.Consumer, r.EventID).must(none, elsewhere))
	} else {
		steps = append(steps, s.change(removeDelivery, r.Consumer, r.EventID, string(r.Found), r.Generation, r.ClaimToken).must(some, elsewhere))
	}
	if r.Generation > 0 { // the event has been processed after all
		steps = append(steps, s.change(resolve, r.Consumer, r.EventID, s.time(r.Now), s.time(r.DeadLetterUntil)))
	}
	return steps
}

// concludeWith ends a transaction with steps and a hook. Without a hook they may go with the commit.
func (s *Store) concludeWith(ctx context.Context, tx Tx, hook func(context.Context, any) error, steps ...step) error {
	end := walk
	if hook == nil {
		end = s.walkLater
	}
	if err := end(ctx, tx, steps...); err != nil {
		return err
	}
	return finish(ctx, tx, hook, eventing.FaultConcluding)
}

func (s *Store) lockReplayed(r eventing.Run) step {
	return s.look(lockDeadLetter, r.EventID, r.Consumer)
}

func conflict(r eventing.Run) error {
	return fmt.Errorf("event %s at %s: %w", r.EventID, r.Consumer, eventing.ErrConflict)
}

func finish(ctx context.Context, tx Tx, hook func(context.Context, any) error, p eventing.FaultPoint) error {
	if hook != nil {
		if err := hook(ctx, tx.Raw()); err != nil {
			return err
		}
	}
	return eventing.Fault(ctx, p)
}

const anyDelivery = `SELECT 1 FROM event_deliveries WHERE consumer_name = $1 AND event_id = $2`

// asFound is the condition that a delivery is still what its run began with.
const asFound = ` WHERE consumer_name = $1 AND event_id = $2 AND state = $3 AND generation = $4 AND coalesce(claim_token, '') = $5`

// removeDelivery removes the run's delivery row.
const removeDelivery = `DELETE FROM event_deliveries` + asFound

// resolve closes an open dead letter. Its expiry stays as it is if until is zero.
const resolve = `
UPDATE dead_letter_consumers SET status = 'closed', resolution = 'resolved', updated_at = $3, expires_at = coalesce($4, expires_at)
WHERE consumer_name = $1 AND event_id = $2 AND status <> 'closed'`

const deleteInbox = `DELETE FROM processed_events WHERE event_id = $1 AND consumer_name = $2`

// Fail implements [eventing.ConsumerStore].
func (s *Store) Fail(ctx context.Context, f eventing.Failure) error {
	finished := false
	err := s.inTx(ctx, func(tx Tx) error {
		if err := s.checkLease(ctx, tx, f.Lease); err != nil {
			return err
		}
		if f.Generation > 0 {
			if err := walk(ctx, tx, s.lockReplayed(f.Run)); err != nil {
				return err
			}
		}
		if err := s.unprocessed(ctx, tx, f); err != nil {
			return err
		}
		if err := s.recordFailure(ctx, tx, f); err != nil {
			return err
		}
		if err := s.afterFailure(ctx, tx, f); err != nil {
			return err
		}
		err := finish(ctx, tx, f.Finish, eventing.FaultFailing)
		finished = f.Finish != nil && err == nil
		return err
	})
	if finished && s.d.Broken(err) {
		return fmt.Errorf("%w: %w", eventing.ErrBrokenTx, err)
	}
	return err
}

const lockInbox = inboxGeneration + ` {for update}`

// unprocessed makes sure that no twin of a failed run has succeeded. One may be about to
// commit its success: inserting the inbox row, or locking the one that a forced run goes
// past, waits for it, which looking would not.
func (s *Store) unprocessed(ctx context.Context, tx Tx, f eventing.Failure) error {
	if f.Force {
		var generation int
		found, err := one(ctx, tx, s.sql(lockInbox), []any{f.EventID, f.Consumer}, &generation)
		switch {
		case err != nil:
			return err
		case found && generation >= f.Generation:
			return conflict(f.Run)
		case found:
			return nil
		}
	}
	inserted, err := tx.Exec(ctx, s.sql(insertInbox), f.EventID, f.Consumer, s.time(f.Now), nil, f.Generation)
	if err != nil {
		return err
	}
	if inserted == 0 {
		return conflict(f.Run)
	}
	_, err = tx.Exec(ctx, s.sql(deleteInbox), f.EventID, f.Consumer)
	return err
}

const updateDelivery = `
UPDATE event_deliveries SET state = $6, attempts = $7, attempt_history = $8, due_at = $9, updated_at = $10, payload = $11, outbox_seq = $12, routing_version = $13, claim_token = NULL, claim_until = NULL` + asFound + ` AND attempts = $14`

// recordFailure writes the delivery row of a failed run.
func (s *Store) recordFailure(ctx context.Context, tx Tx, f eventing.Failure) error {
	history, err := asJSON(append([]eventing.Attempt{}, f.History...))
	if err != nil {
		return err
	}
	var written int64
	if f.Found == eventing.StateNone {
		written, err = tx.Exec(ctx, s.sql(insertDelivery), f.Consumer, f.EventID, f.EventType, nullable(f.OrderingKey), f.Partition,
			string(f.State), f.Attempts, f.PriorAttempts, s.time(f.DueAt), f.Generation, history, string(f.Payload), nullableInt(f.OutboxSeq), s.time(f.Now), nullableBool(f.Force), nullable(f.RoutingVersion))
	} else {
		written, err = tx.Exec(ctx, s.sql(updateDelivery), f.Consumer, f.EventID, string(f.Found), f.Generation, f.ClaimToken,
			string(f.State), f.Attempts, history, s.time(f.DueAt), s.time(f.Now), string(f.Payload), nullableInt(f.OutboxSeq), nullable(f.RoutingVersion), f.Run.Attempts)
	}
	if err == nil && written == 0 {
		err = conflict(f.Run)
	}
	return err
}

const keepDeadLetter = `
UPDATE dead_letter_consumers SET expires_at = $3 WHERE consumer_name = $1 AND event_id = $2 AND status <> 'closed'`

// afterFailure opens the dead letter of a delivery that has died; a replay that
// goes on keeps the one it has from expiring.
func (s *Store) afterFailure(ctx context.Context, tx Tx, f eventing.Failure) error {
	if f.State == eventing.StateDead {
		return s.bury(ctx, tx, f)
	}
	if f.Generation == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, s.sql(keepDeadLetter), f.Consumer, f.EventID, s.time(f.DeadLetterUntil))
	return err
}

// With an in-process broker a settled row says what became of the event, also
// hours later. Its settlement may be about to commit, for which lockRow waits.
const lockRow = `SELECT seq FROM event_outbox WHERE seq = $1 {for update}`

const failSentRow = `UPDATE event_outbox SET status = 'failed', last_error = $2 WHERE seq = $1 AND status = 'sent'`

// bury opens the dead letter of a delivery that has just died.
func (s *Store) bury(ctx context.Context, tx Tx, f eventing.Failure) error {
	if err := s.recordDeath(ctx, tx, death{
		eventID: f.EventID, consumer: f.Consumer, eventType: f.EventType, payload: f.Payload,
		stage: f.Stage, reason: f.Reason, message: f.Message, attempts: f.Attempts, history: f.History,
		orderingKey: f.OrderingKey, generation: f.Generation, now: f.Now, until: f.DeadLetterUntil,
	}); err != nil || f.OutboxSeq == 0 {
		return err
	}
	var locked int64
	if _, err := one(ctx, tx, s.sql(lockRow), []any{f.OutboxSeq}, &locked); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.sql(failSentRow), f.OutboxSeq, f.Message)
	return err
}

const deadLetterStatus = `SELECT status FROM dead_letter_consumers WHERE event_id = $1 AND consumer_name = $2 {for update}`

// Quarantine implements [eventing.ConsumerStore].
func (s *Store) Quarantine(ctx context.Context, f eventing.Failure) error {
	return s.inTx(ctx, func(tx Tx) error {
		var status string
		known, err := one(ctx, tx, s.sql(deadLetterStatus), []any{f.EventID, f.Consumer}, &status)
		if err != nil {
			return err
		}
		if known && eventing.ReviewStatus(status) != eventing.StatusReplayed {
			return nil // the broker delivers it once more
		}
		if err := s.bury(ctx, tx, f); err != nil {
			return err
		}
		return finish(ctx, tx, f.Finish, eventing.FaultFailing)
	})
}
