package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Stats implements [eventing.AdminStore].
func (s *Store) Stats(ctx context.Context) (stats eventing.Stats, err error) {
	stats = eventing.Stats{Outbox: map[string]int64{}, Deliveries: map[string]int64{}, DeadLetters: map[string]int64{}}
	for _, st := range []status{pending, sent, failed} {
		if err := count(ctx, s.outbox, bson.D{eq("status", st)}, stats.Outbox, string(st)); err != nil {
			return stats, err
		}
	}
	for _, state := range []eventing.State{eventing.StateRetrying, eventing.StateParked, eventing.StateDead} {
		if err := count(ctx, s.inbox, bson.D{eq("delivery.state", string(state))}, stats.Deliveries, string(state)); err != nil {
			return stats, err
		}
	}
	stats.Inbox, err = s.inbox.CountDocuments(ctx, bson.D{eq("processedAt", bson.D{eq("$exists", true)})})
	if err != nil {
		return stats, typed(err)
	}
	oldest, err := s.endOf(ctx, bson.D{eq("status", sent)}, "sentAt", 1)
	if err != nil {
		return stats, err
	}
	if oldest != nil {
		stats.OldestSent = oldest.SentAt
	}
	if oldest, err = s.endOf(ctx, bson.D{eq("status", pending), eq("createdAt", bson.D{eq("$exists", true)})}, "createdAt", 1); err != nil {
		return stats, err
	}
	if oldest != nil {
		stats.OldestPending = oldest.CreatedAt
	}
	return stats, each(ctx, s.dead, bson.D{}, options.Find().SetProjection(bson.D{eq("consumers.status", 1)}),
		func(doc deadDoc) (more bool, err error) {
			for _, e := range doc.Consumers {
				stats.DeadLetters[e.Status]++
			}
			return true, nil
		})
}

// count counts what there is at all.
func count(ctx context.Context, c *mongo.Collection, filter bson.D, into map[string]int64, name string) error {
	n, err := c.CountDocuments(ctx, filter)
	if n > 0 {
		into[name] = n
	}
	return typed(err)
}

// Requeue implements [eventing.AdminStore]. Each row is requeued by a write of its own, the oldest
// first; after an error, or a crash, those before it are pending.
func (s *Store) Requeue(ctx context.Context, seqs []int64) (int, error) {
	rows, err := find[outboxDoc](ctx, s.outbox, bson.D{in("seq", slices.Clone(seqs)), eq("status", sent)},
		options.Find().SetSort(ascending("seq")).SetProjection(bson.D{eq("payload", 0)}))
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	writes := make([]mongo.WriteModel, len(rows))
	for i := range rows {
		fields := bson.D{eq("status", pending)}
		if rows[i].Lane == string(eventing.Expedited) { // its unordered consumers need it, too
			fields = append(fields, eq("lane", string(eventing.Critical)))
		}
		writes[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{eq("_id", rows[i].ID), eq("status", sent)}).
			SetUpdate(bson.D{{Key: "$set", Value: fields}, {Key: "$unset", Value: bson.D{eq("sentAt", ""), eq("aside", "")}}})
	}
	done, err := s.outbox.BulkWrite(ctx, writes)
	if err != nil {
		return 0, typed(err)
	}
	return int(done.MatchedCount), nil
}
