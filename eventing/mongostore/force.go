package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Force implements [eventing.DeadLetterStore].
func (s *Store) Force(ctx context.Context, t eventing.Target, generation int, act eventing.Act) error {
	return s.change(ctx, t, func(c *change) error {
		event, dl, err := c.dead()
		if err != nil {
			return err
		}
		f := eventing.ToForce{Target: t, Processed: c.doc.processed(), InboxGeneration: c.doc.Generation}
		if dl != nil {
			f.Died, f.Status, f.Resolution, f.Generation = true, eventing.ReviewStatus(dl.Status), eventing.Resolution(dl.Resolution), dl.Generation
		}
		if c.doc.Delivery != nil {
			f.Delivery = eventing.State(c.doc.Delivery.State)
		}
		last, err := s.rowsOf(ctx, &f)
		if err != nil {
			return err
		}
		next, err := f.NextGeneration(generation)
		if err != nil {
			return err
		}
		if event == nil {
			if event, err = c.deadEvent(); err != nil {
				return err
			}
		}
		letter := eventing.DeadLetter{EventID: t.EventID, Consumer: t.Consumer}
		switch {
		case event != nil:
			letter.EventType, letter.Payload = event.EventType, event.Payload
		case last != nil:
			letter.EventType, letter.Payload = last.EventType, last.Payload
		default:
			return f.ErrNoPayload()
		}
		row := eventing.ReplayRow(letter, next, act.At)
		row.Force = true
		var death *deathDoc
		if dl != nil {
			dl.Resolution, dl.Generation = string(eventing.Resolved), next
			dl.record(act)
			death = &deathDoc{EventID: t.EventID, Entry: *dl}
		}
		if err := c.sendAgain(row, death); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultForcing)
	})
}

// rowsOf fills in what the outbox has, and returns the last row of the event, if one is kept.
func (s *Store) rowsOf(ctx context.Context, f *eventing.ToForce) (last *outboxDoc, err error) {
	rows, err := find[outboxDoc](ctx, s.outbox, bson.D{eq("eventId", f.EventID), eq("seq", bson.D{eq("$gt", 0)})},
		options.Find().SetSort(ascending("seq")))
	for i := range rows {
		if rows[i].Partition == nil {
			continue
		}
		last = &rows[i]
		if last.Consumer == f.Consumer {
			f.Sent = max(f.Sent, last.Generation)
		}
	}
	return last, err
}
