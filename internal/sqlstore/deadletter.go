package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// death is an event that dies at one consumer, for the first time or again.
type death struct {
	eventID, consumer, eventType string
	payload                      []byte
	stage                        eventing.Stage
	reason                       eventing.ReasonCode
	message                      string
	attempts                     int // in history; the dispatcher makes none
	history                      []eventing.Attempt
	orderingKey, holdsKey        string
	generation                   int
	now, until                   time.Time
}

const upsertDeadEvent = `
INSERT INTO dead_letter_events (event_id, event_type, payload, error, first_seen_at, last_seen_at, attempts)
VALUES ($1, $2, $3, $4, $5, $5, $6)
ON CONFLICT (event_id) DO UPDATE SET payload = excluded.payload, error = excluded.error, last_seen_at = excluded.last_seen_at,
	attempts = dead_letter_events.attempts + excluded.attempts`

const lastDeath = `SELECT attempt_count, attempt_history FROM dead_letter_consumers WHERE event_id = $1 AND consumer_name = $2 {for update}`

const insertDeath = `
INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history,
	status, ordering_key, holds_key, generation, created_at, updated_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8, $9, $10, $11, $11, $12)
ON CONFLICT (event_id, consumer_name) DO UPDATE SET reason_code = excluded.reason_code, reason_message = excluded.reason_message,
	attempt_count = excluded.attempt_count, attempt_history = excluded.attempt_history, status = 'pending', resolution = NULL,
	stage = excluded.stage, holds_key = excluded.holds_key, updated_at = excluded.updated_at, expires_at = excluded.expires_at, scheduled_at = NULL,
	generation = CASE WHEN excluded.generation > dead_letter_consumers.generation THEN excluded.generation ELSE dead_letter_consumers.generation END`

// recordDeath opens a dead letter, or opens it again.
func (s *Store) recordDeath(ctx context.Context, tx Tx, d death) error {
	var known int
	var history jsonText[[]eventing.Attempt]
	if _, err := one(ctx, tx, s.sql(lastDeath), []any{d.eventID, d.consumer}, &known, &history); err != nil {
		return err
	}
	switch {
	case d.stage == eventing.StageDispatch: // no consumer has tried
		d.attempts, d.history = known, history.V
	case d.attempts <= known: // no delivery row went on counting: do it here
		d.history = slices.Clone(d.history) // the caller may have to do all this again
		for i := range d.history {
			d.history[i].Attempt += known
		}
		d.attempts += known
		d.history = append(history.V, d.history...)
		if len(d.history) > maxHistory {
			d.history = d.history[len(d.history)-maxHistory:]
		}
	}
	attempts, err := asJSON(append([]eventing.Attempt{}, d.history...))
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.sql(upsertDeadEvent), d.eventID, d.eventType, string(d.payload), d.message, s.time(d.now), d.attempts-known); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.sql(insertDeath), d.eventID, d.consumer, string(d.stage), string(d.reason), d.message, d.attempts, attempts,
		nullable(d.orderingKey), nullable(d.holdsKey), d.generation, s.time(d.now), s.time(d.until))
	return err
}

const maxHistory = 100

const oneDeadLetter = selectDeadLetters + `WHERE c.event_id = $1 AND c.consumer_name = $2`

const lockDeadLetter = `SELECT 1 FROM dead_letter_consumers WHERE event_id = $1 AND consumer_name = $2 {for update}`

// lockDeadLetter reads a dead letter for an act on it.
func (s *Store) lockDeadLetter(ctx context.Context, tx Tx, t eventing.Target) (d eventing.DeadLetter, err error) {
	var locked int
	found, err := one(ctx, tx, s.sql(lockDeadLetter), []any{t.EventID, t.Consumer}, &locked)
	if err != nil {
		return d, err
	}
	if !found {
		return d, fmt.Errorf("dead letter %s: %w", t, eventing.ErrNotFound)
	}
	err = each(ctx, tx, s.sql(oneDeadLetter), []any{t.EventID, t.Consumer}, func(rows Rows) error { return scanDeadLetter(rows, &d) })
	return d, err
}

const updateDeadLetter = `
UPDATE dead_letter_consumers SET status = $3, resolution = $4, generation = $5, notes = $6, updated_at = $7, expires_at = $8, scheduled_at = $9
WHERE event_id = $1 AND consumer_name = $2`

// act moves a dead letter to its next state and records who did it.
func (s *Store) act(ctx context.Context, tx Tx, d eventing.DeadLetter, a eventing.Act) error {
	for _, at := range []time.Time{a.At, d.ScheduledAt} {
		if keep := at.Add(eventing.ActRetention); keep.After(d.ExpiresAt) {
			d.ExpiresAt = keep
		}
	}
	notes, err := asJSON(append(d.Acts, a))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.sql(updateDeadLetter), d.EventID, d.Consumer, string(d.Status), nullable(string(d.Resolution)), d.Generation, notes, s.time(a.At), s.time(d.ExpiresAt), s.time(d.ScheduledAt))
	return err
}

func notAllowed(t eventing.Target, act string, d eventing.DeadLetter) error {
	return fmt.Errorf("dead letter %s is %s: %s is %w", t, d.Status, act, eventing.ErrState)
}
