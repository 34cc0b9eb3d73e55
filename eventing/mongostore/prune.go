package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Prune implements [eventing.PruneStore]. It also completes what others have left, and removes
// what remains of locks and of batches that were taken over. What cannot be completed keeps it from nothing; the
// error tells of it.
func (s *Store) Prune(ctx context.Context, r eventing.PruneRequest) (eventing.Pruned, error) {
	left := s.completeAll(ctx, r.Now)
	n, err := s.prune(ctx, r)
	return n, errors.Join(err, left)
}

func (s *Store) prune(ctx context.Context, r eventing.PruneRequest) (n eventing.Pruned, err error) {
	if n.Outbox, err = s.pruneOutbox(ctx, r); err != nil {
		return n, err
	}
	if n.Inbox, err = s.pruneInbox(ctx, r); err != nil {
		return n, err
	}
	if err := s.pruneDead(ctx, r, &n); err != nil {
		return n, err
	}
	return n, s.pruneRemains(ctx, time.Now())
}

// remainsFor is how long a batch that was taken over is known as such: a worker that was
// paused for longer could commit it.
const remainsFor = 7 * 24 * time.Hour

func (s *Store) pruneRemains(ctx context.Context, now time.Time) error {
	if _, err := s.commits.DeleteMany(ctx, bson.D{eq("aborted", true), eq("at", bson.D{eq("$lt", now.Add(-remainsFor))})}); err != nil {
		return typed(err)
	}
	_, err := s.keys.DeleteMany(ctx, bson.D{eq("until", bson.D{eq("$lt", now.Add(-remainsFor))})})
	return typed(err)
}

const pruneChunk = 500

// chunks hands documents on in chunks, until fn says that it has enough.
func chunks[T any](fn func(docs []T) (more bool, err error)) (add func(doc T) (more bool, err error), rest func() error) {
	var docs []T
	flush := func() (bool, error) {
		if len(docs) == 0 {
			return true, nil
		}
		full := docs
		docs = nil
		return fn(full)
	}
	return func(doc T) (bool, error) {
			if docs = append(docs, doc); len(docs) < pruneChunk {
				return true, nil
			}
			return flush()
		}, func() error {
			_, err := flush()
			return err
		}
}

func (s *Store) pruneOutbox(ctx context.Context, r eventing.PruneRequest) (n int, err error) {
	add, rest := chunks(func(rows []outboxDoc) (more bool, err error) {
		ids := make([]string, len(rows))
		for i := range rows {
			ids[i] = rows[i].EventID
		}
		live, err := s.live(ctx, ids)
		if err != nil {
			return false, err
		}
		var gone []string
		for i := range rows {
			if !live[rows[i].EventID] && n+len(gone) < r.Limit {
				gone = append(gone, rows[i].ID)
			}
		}
		if len(gone) > 0 {
			removed, err := s.outbox.DeleteMany(ctx, bson.D{in("_id", gone), in("status", []status{sent, failed})})
			if err != nil {
				return false, typed(err)
			}
			n += int(removed.DeletedCount)
		}
		return n < r.Limit, nil
	})
	err = each(ctx, s.outbox, bson.D{in("status", []status{sent, failed}), eq("sentAt", bson.D{eq("$lt", r.SentBefore)})},
		options.Find().SetProjection(bson.D{eq("eventId", 1)}), add)
	if err == nil {
		err = rest()
	}
	return n, err
}

// live returns those of some events that may still reach a consumer, so that what is known of
// them is still needed.
func (s *Store) live(ctx context.Context, ids []string) (map[string]bool, error) {
	live := map[string]bool{}
	pendingRows, err := find[outboxDoc](ctx, s.outbox, bson.D{in("eventId", ids), eq("status", pending)},
		options.Find().SetProjection(bson.D{eq("eventId", 1)}))
	if err != nil {
		return nil, err
	}
	for i := range pendingRows {
		live[pendingRows[i].EventID] = true
	}
	trouble, err := find[inboxDoc](ctx, s.inbox, bson.D{in("eventId", ids), eq("delivery", bson.D{eq("$exists", true)})},
		options.Find().SetProjection(bson.D{eq("eventId", 1)}))
	if err != nil {
		return nil, err
	}
	for i := range trouble {
		live[trouble[i].EventID] = true
	}
	dead, err := find[deadDoc](ctx, s.dead, bson.D{in("_id", ids)}, options.Find().SetProjection(bson.D{eq("consumers.status", 1)}))
	for i := range dead {
		if dead[i].open() {
			live[dead[i].ID] = true
		}
	}
	return live, err
}

// Remembered reports which of some events the store knows of still: the inbox, a delivery, a dead letter, closed or
// not, or a pending row. What is not among them can come again, and is new then.
func (s *Store) Remembered(ctx context.Context, eventIDs []string) (map[string]bool, error) {
	known, err := s.live(ctx, eventIDs)
	if err != nil {
		return nil, err
	}
	processed, err := find[inboxDoc](ctx, s.inbox, bson.D{in("eventId", eventIDs)}, options.Find().SetProjection(bson.D{eq("eventId", 1)}))
	if err != nil {
		return nil, err
	}
	for i := range processed {
		known[processed[i].EventID] = true
	}
	dead, err := find[deadDoc](ctx, s.dead, bson.D{in("_id", eventIDs)}, options.Find().SetProjection(bson.D{eq("_id", 1)}))
	for i := range dead {
		known[dead[i].ID] = true
	}
	return known, err
}

func (s *Store) pruneInbox(ctx context.Context, r eventing.PruneRequest) (n int, err error) {
	add, rest := chunks(func(docs []inboxDoc) (more bool, err error) {
		ids := make([]string, len(docs))
		for i := range docs {
			ids[i] = docs[i].EventID
		}
		needed, err := s.live(ctx, ids)
		if err != nil {
			return false, err
		}
		sendable, err := find[outboxDoc](ctx, s.outbox, bson.D{in("eventId", ids)}, options.Find().SetProjection(bson.D{eq("eventId", 1)}))
		if err != nil {
			return false, err
		}
		for i := range sendable { // by Requeue
			needed[sendable[i].EventID] = true
		}
		for i := range docs {
			if needed[docs[i].EventID] || n >= r.Limit {
				continue
			}
			forgotten, err := s.forgetProcessed(ctx, docs[i].target(), r.Now)
			if err != nil {
				return false, err
			}
			if forgotten {
				n++
			}
		}
		return n < r.Limit, nil
	})
	err = each(ctx, s.inbox, bson.D{eq("expiresAt", bson.D{eq("$lte", r.Now)})},
		options.Find().SetProjection(bson.D{eq("eventId", 1), eq("consumer", 1)}), add)
	if err == nil {
		err = rest()
	}
	return n, err
}

func (s *Store) forgetProcessed(ctx context.Context, t eventing.Target, now time.Time) (forgotten bool, err error) {
	err = s.change(ctx, t, func(c *change) error {
		if forgotten = c.doc.processed() && !c.doc.ExpiresAt.After(now) && c.doc.Delivery == nil; !forgotten {
			return errUnchanged
		}
		c.doc.ProcessedAt, c.doc.ExpiresAt, c.doc.Generation = time.Time{}, time.Time{}, 0
		return nil
	})
	return forgotten, err
}

// pruneDead removes closed dead letters, and gives open ones up: they go in a later round.
func (s *Store) pruneDead(ctx context.Context, r eventing.PruneRequest, n *eventing.Pruned) error {
	expired, err := find[deadDoc](ctx, s.dead, bson.D{eq("consumers.expiresAt", bson.D{eq("$lte", r.Now)})},
		options.Find().SetProjection(bson.D{eq("consumers", 1)}).SetSort(ascending("createdAt")))
	if err != nil {
		return err
	}
	for i := range expired {
		for j := range expired[i].Consumers {
			t := eventing.Target{EventID: expired[i].ID, Consumer: expired[i].Consumers[j].Consumer}
			if err := s.expire(ctx, t, r, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) expire(ctx context.Context, t eventing.Target, r eventing.PruneRequest, n *eventing.Pruned) error {
	var removed, discarded int
	err := s.change(ctx, t, func(c *change) error {
		removed, discarded = 0, 0
		_, dl, err := c.dead()
		switch {
		case err != nil:
			return err
		case dl == nil || dl.ExpiresAt.IsZero() || dl.ExpiresAt.After(r.Now):
			return errUnchanged
		case !dl.open():
			if n.DeadLetters >= r.Limit {
				return errUnchanged
			}
			removed, c.doc.Died = 1, false
			c.then(op{Do: doExhume, EventID: t.EventID, Consumer: t.Consumer})
			return nil
		case n.Expired >= r.Limit:
			return errUnchanged
		}
		waits, err := s.waitsFor(ctx, t, dl)
		if err != nil {
			return err
		}
		if waits {
			return errUnchanged
		}
		discarded = 1
		c.discard(*dl, eventing.Act{Act: "discarded", By: "pruner", At: r.Now.UTC(), Note: string(eventing.ReasonExpired)})
		return nil
	})
	if err == nil {
		n.DeadLetters += removed
		n.Expired += discarded
	}
	return err
}

// waitsFor reports whether deliveries or outbox rows wait for a dead letter.
func (s *Store) waitsFor(ctx context.Context, t eventing.Target, dl *deadEntry) (bool, error) {
	parked, err := s.parkedBehind(ctx, t, dl.OrderingKey)
	if err != nil || parked > 0 || !dl.HoldsKey {
		return parked > 0, err
	}
	row, err := findOne[outboxDoc](ctx, s.outbox, bson.D{
		eq("status", pending), eq("orderingKey", dl.OrderingKey), eq("eventId", bson.D{eq("$ne", t.EventID)}),
	}, options.FindOne().SetProjection(bson.D{eq("_id", 1)}))
	return row != nil, err
}
