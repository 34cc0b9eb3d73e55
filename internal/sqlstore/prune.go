package sqlstore

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/eventing"
)

// Of an event's rows, the pending one that has its ID is found by that, and all others by
// an index of their own.
const (
	pendingRow = `(
	EXISTS (SELECT 1 FROM event_outbox live WHERE live.id = t.event_id AND live.event_id = t.event_id AND live.status = 'pending')
	OR EXISTS (SELECT 1 FROM event_outbox live WHERE live.event_id = t.event_id AND live.id <> live.event_id AND live.status = 'pending'))`
	settledRow = `EXISTS (SELECT 1 FROM event_outbox o WHERE o.event_id = t.event_id AND o.status <> 'pending')`
)

// reachable: something can still run or send this event. Of the inbox also what a settled
// row could still bring back: see Requeue.
const reachable = `(` + pendingRow + `
	OR EXISTS (SELECT 1 FROM event_deliveries d WHERE d.event_id = t.event_id)
	OR EXISTS (SELECT 1 FROM dead_letter_consumers c WHERE c.event_id = t.event_id AND c.status <> 'closed'))`

// The conditions of the rows that may go, in a table t. Each begins as an index of its table does: SQLite uses
// a partial one only where its own condition stands.
const (
	OldOutbox      = `status <> 'pending' AND sent_at < $1 AND NOT ` + reachable
	OldInbox       = `expires_at < $1 AND NOT ` + reachable + ` AND NOT ` + settledRow
	OldDeadLetters = `status = 'closed' AND expires_at < $1`
)

// deleteSome returns the statement that removes the first $2 rows that meet a condition.
func (s *Store) deleteSome(table, condition string) string {
	return `DELETE FROM ` + table + ` WHERE ` + s.d.Among(`SELECT {place} FROM `+table+` t WHERE `+condition+` LIMIT $2 {skip locked}`)
}

// An event may be dying at another consumer, which has locked its row. The DELETE is a statement
// of its own after that lock, so that it sees the dead letter that was waited for.
const lockDeadEvents = `SELECT event_id FROM dead_letter_events WHERE {in event_id $1} ORDER BY event_id {for update}`

const pruneDeadEvents = `
DELETE FROM dead_letter_events WHERE {in event_id $1}
	AND NOT EXISTS (SELECT 1 FROM dead_letter_consumers c WHERE c.event_id = dead_letter_events.event_id)`

// ExpiredDeadLetters are the open ones that may be discarded by themselves. Only of one that holds its key up in the outbox the
// outbox, which has no index of keys, is read.
const ExpiredDeadLetters = `
SELECT c.event_id, c.consumer_name FROM dead_letter_consumers c
WHERE c.status <> 'closed' AND c.expires_at < $1
	AND NOT EXISTS (SELECT 1 FROM event_deliveries p WHERE p.consumer_name = c.consumer_name
		AND p.ordering_key = c.ordering_key AND p.event_id <> c.event_id)
	AND (c.holds_key IS NULL OR NOT EXISTS (SELECT 1 FROM event_outbox w WHERE w.ordering_key = c.holds_key AND w.status = 'pending' AND w.event_id <> c.event_id))
ORDER BY c.expires_at LIMIT $2`

// Prune implements [eventing.PruneStore]. Each table has a short transaction of
// its own.
func (s *Store) Prune(ctx context.Context, r eventing.PruneRequest) (n eventing.Pruned, err error) {
	var expired []eventing.Target
	if err := each(ctx, s.db, s.sql(ExpiredDeadLetters), []any{s.time(r.Now), r.Limit}, func(rows Rows) error {
		expired = append(expired, eventing.Target{})
		return rows.Scan(&expired[len(expired)-1].EventID, &expired[len(expired)-1].Consumer)
	}); err != nil {
		return n, err
	}
	for _, t := range expired {
		act := eventing.Act{Act: "discarded", By: "pruner", At: r.Now, Note: string(eventing.ReasonExpired)}
		done, err := s.discard(ctx, t, act, func(d eventing.DeadLetter) bool { return d.ExpiresAt.Before(r.Now) })
		if err != nil && !errors.Is(err, eventing.ErrState) && !errors.Is(err, eventing.ErrNotFound) {
			return n, err
		}
		n.Expired += boolToInt(done)
	}
	if n.Outbox, err = s.prune(ctx, s.deleteSome("event_outbox", OldOutbox), s.time(r.SentBefore), r.Limit); err != nil {
		return n, err
	}
	if n.Outbox < r.Limit { // else more is to go, and to look at what it holds of the inbox would be in vain
		if n.Inbox, err = s.prune(ctx, s.deleteSome("processed_events", OldInbox), s.time(r.Now), r.Limit); err != nil {
			return n, err
		}
	}
	n.DeadLetters, err = s.pruneDeadLetters(ctx, r)
	return n, err
}

func (s *Store) prune(ctx context.Context, query string, args ...any) (n int, err error) {
	err = s.retryTx(ctx, func(tx Tx) error {
		removed, err := tx.Exec(ctx, s.sql(query), args...)
		n = int(removed)
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (s *Store) pruneDeadLetters(ctx context.Context, r eventing.PruneRequest) (n int, err error) {
	err = s.retryTx(ctx, func(tx Tx) error {
		n = 0
		var events []string
		if err := each(ctx, tx, s.sql(s.deleteSome("dead_letter_consumers", OldDeadLetters)+` RETURNING event_id`), []any{s.time(r.Now), r.Limit}, func(rows Rows) error {
			events = append(events, "")
			return rows.Scan(&events[len(events)-1])
		}); err != nil || len(events) == 0 {
			return err
		}
		n = len(events)
		if _, err := tx.Exec(ctx, s.sql(lockDeadEvents), s.list(events)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql(pruneDeadEvents), s.list(events))
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
