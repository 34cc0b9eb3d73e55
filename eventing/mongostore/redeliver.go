package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Due implements [eventing.ConsumerStore].
func (s *Store) Due(ctx context.Context, r eventing.DueRequest) ([]eventing.Run, error) {
	if r.Limit <= 0 {
		return nil, nil
	}
	if r.Ordered {
		return s.dueHeads(ctx, r)
	}
	return s.dueRetries(ctx, r)
}

// dueRetries claims an unordered consumer's deliveries.
func (s *Store) dueRetries(ctx context.Context, r eventing.DueRequest) (runs []eventing.Run, err error) {
	ready := bson.A{
		bson.D{eq("delivery.state", string(eventing.StateParked))},
		bson.D{eq("delivery.state", string(eventing.StateRetrying)), eq("delivery.dueAt", bson.D{eq("$lte", r.Now)})},
		bson.D{eq("delivery.state", string(eventing.StateRetrying)), eq("delivery.dueAt", nil)},
	}
	filter := bson.D{
		eq("delivery.consumer", r.Consumer), eq("$or", ready),
		eq("$and", bson.A{bson.D{eq("$or", bson.A{
			bson.D{eq("delivery.claimUntil", nil)}, bson.D{eq("delivery.claimUntil", bson.D{eq("$lte", r.Now)})},
		})}}),
	}
	if len(r.Exclude) > 0 {
		filter = append(filter, eq("eventId", bson.D{eq("$nin", r.Exclude)}))
	}
	due, err := find[inboxDoc](ctx, s.inbox, filter,
		options.Find().SetSort(ascending("delivery.dueAt", "delivery.position")).SetLimit(int64(r.Limit)))
	if err != nil {
		return nil, err
	}
	for i := range due {
		doc := &due[i]
		if doc.Redo != nil {
			continue // it is being changed
		}
		doc.Delivery.ClaimToken, doc.Delivery.ClaimUntil = r.ClaimToken, r.ClaimUntil
		claimed := &change{s: s, ctx: ctx, doc: *doc, rev: doc.Rev}
		won, err := claimed.commit()
		if err != nil {
			return runs, err
		}
		if won {
			runs = append(runs, doc.run(nil))
		}
	}
	return runs, nil
}

// dueHeads are the deliveries that an ordered consumer may run: of each key the head, whose
// predecessors have all left.
func (s *Store) dueHeads(ctx context.Context, r eventing.DueRequest) ([]eventing.Run, error) {
	leases := make(map[int]*eventing.Lease, len(r.Leases))
	partitions := make([]int, 0, len(r.Leases))
	for _, l := range r.Leases {
		leases[l.Partition] = &l
		partitions = append(partitions, l.Partition)
	}
	if len(partitions) == 0 {
		return nil, nil
	}
	var heads []string
	seen := map[string]bool{}
	err := each(ctx, s.inbox, bson.D{eq("delivery.consumer", r.Consumer), in("delivery.partition", partitions)},
		options.Find().SetSort(ascending("delivery.position")).SetProjection(bson.D{eq("delivery.payload", 0), eq("delivery.history", 0)}),
		func(doc inboxDoc) (more bool, err error) {
			d := doc.Delivery
			key := d.OrderingKey
			if key == "" {
				key = "event " + doc.EventID
			} else {
				key = "key " + key
			}
			due := d.State == string(eventing.StateParked) || d.State == string(eventing.StateRetrying) && !d.DueAt.After(r.Now)
			if !seen[key] && due && !slices.Contains(r.Exclude, doc.EventID) {
				heads = append(heads, doc.ID)
			}
			seen[key] = true
			return len(heads) < r.Limit, nil
		})
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	docs, err := find[inboxDoc](ctx, s.inbox, bson.D{in("_id", heads)}, options.Find().SetSort(ascending("delivery.position")))
	var runs []eventing.Run
	for i := range docs {
		if docs[i].Delivery != nil {
			runs = append(runs, docs[i].run(leases[docs[i].Delivery.Partition]))
		}
	}
	return runs, err
}
