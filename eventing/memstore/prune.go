package memstore

import (
	"context"
	"maps"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Prune implements [eventing.PruneStore].
func (s *Store) Prune(ctx context.Context, r eventing.PruneRequest) (eventing.Pruned, error) {
	var n eventing.Pruned
	err := s.write(ctx, func(tx *Tx) error {
		live := tx.live()
		for id, row := range s.outbox.rows {
			if n.Outbox < r.Limit && row.status != pending && row.settledAt.Before(r.SentBefore) && !live[row.EventID] {
				tx.outbox.remove(id)
				n.Outbox++
			}
		}
		sendable := map[string]bool{} // by Requeue
		for id, row := range s.outbox.rows {
			if tx.outbox.get(id) != nil {
				sendable[row.EventID] = true
			}
		}
		for t, row := range s.inbox.rows {
			if n.Inbox < r.Limit && past(row.until, r.Now) && !live[t.EventID] && !sendable[t.EventID] {
				tx.inbox.remove(t)
				n.Inbox++
			}
		}
		for _, e := range s.dead.rows {
			for _, dl := range e.at {
				tx.expire(dl, r, &n)
			}
		}
		return nil
	})
	if err != nil {
		return eventing.Pruned{}, err
	}
	return n, nil
}

// live returns the events that may still reach a consumer, so that what is known
// of them is still needed.
func (tx *Tx) live() map[string]bool {
	events := map[string]bool{}
	for _, q := range []queue{tx.store.pending, tx.store.unadopted} {
		for _, e := range q {
			events[tx.outbox.get(e.id).EventID] = true
		}
	}
	for t := range tx.store.deliveries.rows {
		events[t.EventID] = true
	}
	for id, e := range tx.store.dead.rows {
		if e.open() {
			events[id] = true
		}
	}
	return events
}

// expire removes a closed dead letter, and gives an open one up: it goes in a
// later round.
func (tx *Tx) expire(dl deadLetter, r eventing.PruneRequest, n *eventing.Pruned) {
	switch {
	case !past(dl.ExpiresAt, r.Now):
	case !dl.open():
		if n.DeadLetters < r.Limit {
			tx.removeDeadLetter(dl)
			n.DeadLetters++
		}
	case n.Expired < r.Limit && tx.parkedBehind(dl) == 0 && !tx.holdsRows(dl):
		tx.discard(dl, eventing.Act{Act: "discarded", By: "pruner", At: r.Now.UTC(), Note: string(eventing.ReasonExpired)})
		n.Expired++
	}
}

// holdsRows reports whether outbox rows wait for a dead letter.
func (tx *Tx) holdsRows(dl deadLetter) bool {
	if !dl.holdsKey {
		return false
	}
	for _, e := range tx.store.pending {
		if row := tx.outbox.get(e.id); row != nil && row.OrderingKey == dl.OrderingKey && row.EventID != dl.EventID {
			return true
		}
	}
	return false
}

// removeDeadLetter removes the event too, with its last dead letter.
func (tx *Tx) removeDeadLetter(dl deadLetter) {
	e := *tx.dead.get(dl.EventID)
	e.at = maps.Clone(e.at)
	delete(e.at, dl.Consumer)
	if len(e.at) == 0 {
		tx.dead.remove(dl.EventID)
		return
	}
	tx.dead.put(dl.EventID, e)
}

func past(until, now time.Time) bool { return !until.IsZero() && !until.After(now) }
