package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

const (
	defaultLetters = 100
	maxLetters     = 10_000
)

// DeadLetters implements [eventing.DeadLetterStore].
func (s *Store) DeadLetters(ctx context.Context, f eventing.DeadLetterFilter) ([]eventing.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLetters
	}
	f.Limit = min(f.Limit, maxLetters)
	var found []eventing.DeadLetter
	first := func() {
		slices.SortFunc(found, func(a, b eventing.DeadLetter) int { return a.Place().Compare(b.Place()) })
		found = found[:min(len(found), f.Limit)]
	}
	err := each(ctx, s.dead, roughly(f), options.Find().SetProjection(bson.D{eq("payloadSnapshot", 0), eq("attemptHistory", 0)}),
		func(doc deadDoc) (more bool, err error) {
			for i := range doc.Consumers {
				if dl := doc.letter(&doc.Consumers[i]); selects(f, dl) {
					found = append(found, dl)
				}
			}
			if len(found) > 2*f.Limit+defaultLetters {
				first()
			}
			return true, nil
		})
	if err != nil {
		return nil, err
	}
	first()
	for i := range found {
		if found[i].Status == eventing.StatusClosed {
			continue
		}
		if found[i].ParkedBehind, err = s.parkedBehind(ctx, found[i].Target(), found[i].OrderingKey); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// roughly selects the events among whose dead letters are those that the filter selects.
func roughly(f eventing.DeadLetterFilter) bson.D {
	filter := bson.D{}
	for field, value := range map[string]string{
		"_id": f.EventID, "eventType": f.EventType, "consumers.consumer": f.Consumer, "consumers.orderingKey": f.OrderingKey,
		"consumers.stage": string(f.Stage), "consumers.reasonCode": string(f.Reason), "consumers.status": string(f.Status),
	} {
		if value != "" {
			filter = append(filter, eq(field, value))
		}
	}
	if f.OpenOnly {
		filter = append(filter, eq("reviewStatus", bson.D{eq("$ne", string(eventing.StatusClosed))}))
	}
	since := f.Since
	if f.After.CreatedAt.After(since) {
		since = f.After.CreatedAt
	}
	if !since.IsZero() {
		filter = append(filter, eq("consumers.createdAt", bson.D{eq("$gte", since)}))
	}
	return filter
}

func selects(f eventing.DeadLetterFilter, dl eventing.DeadLetter) bool {
	return either(f.EventID, dl.EventID) && either(f.Consumer, dl.Consumer) && either(f.EventType, dl.EventType) &&
		either(f.OrderingKey, dl.OrderingKey) && either(f.Stage, dl.Stage) && either(f.Reason, dl.Reason) &&
		either(f.Status, dl.Status) && (!f.OpenOnly || dl.Status != eventing.StatusClosed) &&
		!dl.CreatedAt.Before(f.Since) && (f.Until.IsZero() || dl.CreatedAt.Before(f.Until)) &&
		(f.After == eventing.Place{} || f.After.Compare(dl.Place()) < 0)
}

// either reports whether a value is as wanted; none is, too.
func either[T ~string](wanted, value T) bool { return wanted == "" || wanted == value }

// parkedBehind counts the deliveries that wait for a dead letter's.
func (s *Store) parkedBehind(ctx context.Context, t eventing.Target, key string) (int, error) {
	if key == "" {
		return 0, nil
	}
	n, err := s.inbox.CountDocuments(ctx, bson.D{
		eq("delivery.consumer", t.Consumer), eq("delivery.orderingKey", key),
		eq("delivery.state", string(eventing.StateParked)), eq("eventId", bson.D{eq("$ne", t.EventID)}),
	})
	return int(n), typed(err)
}
