package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Backlog implements [eventing.BacklogStore].
func (s *Store) Backlog(ctx context.Context, now time.Time) (b eventing.Backlog, err error) {
	b.Deliveries, b.DeadLetters = map[string]eventing.WaitingDeliveries{}, map[string]int64{}
	if err := s.backlogOfOutbox(ctx, now, &b); err != nil {
		return b, err
	}
	if err := s.backlogOfInbox(ctx, &b); err != nil {
		return b, err
	}
	n := 0
	err = each(ctx, s.dead, bson.D{eq("reviewStatus", bson.D{eq("$ne", string(eventing.StatusClosed))})},
		options.Find().SetProjection(bson.D{eq("consumers.consumer", 1), eq("consumers.status", 1)}),
		func(doc deadDoc) (more bool, err error) {
			for _, e := range doc.Consumers {
				if e.open() {
					b.DeadLetters[e.Consumer]++
					n++
				}
			}
			return n < eventing.BacklogLimit, nil
		})
	return b, err
}

// backlogOfOutbox looks at the pending rows, as many as one could count of all partitions.
func (s *Store) backlogOfOutbox(ctx context.Context, now time.Time, b *eventing.Backlog) error {
	oldest, err := s.endOf(ctx, bson.D{eq("status", sent)}, "sentAt", 1)
	if err != nil {
		return err
	}
	if oldest != nil {
		b.OldestSent = oldest.SentAt
	}
	const limit = eventing.BacklogPartitionLimit * eventing.Partitions
	return each(ctx, s.outbox, bson.D{eq("status", pending)},
		options.Find().SetProjection(bson.D{eq("createdAt", 1), eq("dueAt", 1)}).SetSort(ascending("seq")).SetLimit(limit),
		func(row outboxDoc) (more bool, err error) {
			if row.CreatedAt.IsZero() {
				row.CreatedAt = now // written by hand, without it
			}
			b.OldestPending = earlier(b.OldestPending, row.CreatedAt)
			if !row.DueAt.After(now) {
				b.Due++
				b.OldestDue = earlier(b.OldestDue, later(row.CreatedAt, row.DueAt))
			}
			return true, nil
		})
}

func (s *Store) backlogOfInbox(ctx context.Context, b *eventing.Backlog) error {
	type key struct{ consumer, key string }
	keys := map[key]bool{}
	return each(ctx, s.inbox, bson.D{in("delivery.state", []string{string(eventing.StateRetrying), string(eventing.StateParked)})},
		options.Find().SetLimit(eventing.BacklogLimit).SetProjection(bson.D{
			eq("consumer", 1), eq("eventId", 1), eq("delivery.state", 1), eq("delivery.orderingKey", 1),
		}),
		func(doc inboxDoc) (more bool, err error) {
			w := b.Deliveries[doc.Consumer]
			if doc.Delivery.State == string(eventing.StateRetrying) {
				w.Retrying++
			} else {
				w.Parked++
				k := key{doc.Consumer, "key " + doc.Delivery.OrderingKey}
				if doc.Delivery.OrderingKey == "" {
					k.key = "event " + doc.EventID
				}
				if !keys[k] {
					keys[k] = true
					w.ParkedKeys++
				}
			}
			b.Deliveries[doc.Consumer] = w
			return true, nil
		})
}

func earlier(known, t time.Time) time.Time {
	if known.IsZero() || t.Before(known) {
		return t
	}
	return known
}

// PendingAtMost returns how many outbox rows have yet to be sent at most: as many as are kept, roughly. It costs next to nothing.
func (s *Store) PendingAtMost(ctx context.Context) (int64, error) {
	n, err := s.outbox.EstimatedDocumentCount(ctx)
	return n, typed(err)
}

// Pending counts the outbox rows that have yet to be sent, up to limit.
func (s *Store) Pending(ctx context.Context, limit int64) (int64, error) {
	n, err := s.outbox.CountDocuments(ctx, bson.D{eq("status", pending)}, options.Count().SetLimit(limit))
	return n, typed(err)
}
