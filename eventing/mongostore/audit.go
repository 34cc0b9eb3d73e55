package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// AuditPage implements [eventing.AuditOutbox]. Rows that are written by hand have no Seq before they
// are adopted: they come first of all, before Seq 0, as far as the page has room.
func (s *Store) AuditPage(ctx context.Context, after int64, limit int) (rows []eventing.AuditRow, err error) {
	if after < 0 && limit > 1 {
		rows, err = s.auditRows(ctx, byHand(), options.Find().SetLimit(int64(limit-1)))
		if err != nil {
			return nil, err
		}
	}
	rest, err := s.auditRows(ctx, bson.D{eq("seq", bson.D{eq("$gt", after)})}, options.Find().SetLimit(int64(limit-len(rows))))
	return append(rows, rest...), err
}

// AuditEvents implements [eventing.AuditOutbox].
func (s *Store) AuditEvents(ctx context.Context, eventIDs []string) ([]eventing.AuditRow, error) {
	return s.auditRows(ctx, bson.D{in("eventId", eventIDs)}, options.Find())
}

func (s *Store) auditRows(ctx context.Context, filter bson.D, opts *options.FindOptionsBuilder) (rows []eventing.AuditRow, err error) {
	docs, err := find[outboxDoc](ctx, s.outbox, filter, opts.SetSort(ascending("seq")).SetProjection(bson.D{eq("payload", 0)}))
	for i := range docs {
		d := &docs[i]
		at := d.SentAt
		if at.IsZero() {
			at = d.CreatedAt
		}
		rows = append(rows, eventing.AuditRow{
			Seq: d.Seq, ID: d.ID, EventID: d.EventID, EventType: d.EventType, Consumer: d.Consumer, Generation: d.Generation, Force: d.Force,
			Status: string(d.Status), At: at, Aside: d.Status == sent && d.Partition == nil,
		})
	}
	return rows, err
}

// AuditReach implements [eventing.AuditOutbox].
func (s *Store) AuditReach(ctx context.Context, from time.Time) (reach eventing.AuditReach, err error) {
	last, err := s.endOf(ctx, bson.D{eq("seq", bson.D{eq("$gt", 0)})}, "seq", -1)
	if err != nil || last == nil {
		return reach, err
	}
	reach.LastSeq = last.Seq
	oldest, err := s.endOf(ctx, bson.D{eq("status", sent)}, "sentAt", 1)
	if err != nil {
		return reach, err
	}
	if oldest != nil {
		reach.OldestSent = oldest.SentAt
	}
	if from.IsZero() {
		return reach, nil
	}
	reach.FirstSeq = reach.LastSeq + 1
	for _, filter := range []bson.D{
		{eq("status", pending), eq("seq", bson.D{eq("$gt", 0)})},
		{in("status", []status{sent, failed}), eq("sentAt", bson.D{eq("$gte", from)})},
	} {
		first, err := s.endOf(ctx, filter, "seq", 1)
		if err != nil {
			return reach, err
		}
		if first != nil {
			reach.FirstSeq = min(reach.FirstSeq, first.Seq)
		}
	}
	return reach, nil
}

// endOf returns the first row by a field, or with -1 the last; nil if there is none.
func (s *Store) endOf(ctx context.Context, filter bson.D, field string, direction int) (*outboxDoc, error) {
	return findOne[outboxDoc](ctx, s.outbox, filter,
		options.FindOne().SetSort(bson.D{eq(field, direction)}).SetProjection(bson.D{eq("payload", 0)}))
}

// AuditDeliveries implements [eventing.AuditStore]. The inbox and the deliveries are seen at one
// moment, and the dead letters after it.
func (s *Store) AuditDeliveries(ctx context.Context, eventIDs []string) (map[eventing.Target]eventing.AuditDelivery, error) {
	docs, err := find[inboxDoc](ctx, s.inbox, bson.D{in("eventId", eventIDs)},
		options.Find().SetProjection(bson.D{eq("delivery.payload", 0), eq("delivery.history", 0)}))
	if err != nil {
		return nil, err
	}
	known := map[eventing.Target]eventing.AuditDelivery{}
	for i := range docs {
		d := &docs[i]
		if d.Redo != nil {
			if err := s.complete(ctx, d); err != nil {
				return nil, err
			}
		}
		a := eventing.AuditDelivery{Processed: d.processed(), InboxGeneration: d.Generation}
		if d.Delivery != nil {
			a.State = eventing.State(d.Delivery.State)
		}
		if a.Processed || d.Delivery != nil {
			known[d.target()] = a
		}
	}
	dead, err := find[deadDoc](ctx, s.dead, bson.D{in("_id", eventIDs)}, options.Find().SetProjection(bson.D{eq("consumers", 1)}))
	for i := range dead {
		for j := range dead[i].Consumers {
			e := &dead[i].Consumers[j]
			t := eventing.Target{EventID: dead[i].ID, Consumer: e.Consumer}
			a := known[t]
			a.Status, a.Resolution, a.Generation = eventing.ReviewStatus(e.Status), eventing.Resolution(e.Resolution), e.Generation
			known[t] = a
		}
	}
	return known, err
}
