package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// errBeingRun is the answer to a delivery that a handler is running on: neither ack nor run.
var errBeingRun = errors.New("mongostore: a handler is running on the event, or has died less than its timeout ago")

// Arrive implements [eventing.ConsumerStore].
func (s *Store) Arrive(ctx context.Context, d eventing.Delivery, lease *eventing.Lease, now time.Time) (eventing.Decision, eventing.Run, error) {
	var decision eventing.Decision
	var run eventing.Run
	err := s.change(ctx, targetOf(d), func(c *change) error {
		f, err := c.found(d)
		if err != nil {
			return err
		}
		decision = eventing.Decide(d, f)
		run = eventing.Run{
			Delivery: d, Found: f.State, Attempts: f.Attempts, PriorAttempts: f.PriorAttempts, History: f.History, Lease: lease,
		}
		switch {
		case decision == eventing.DecideRun && c.claimed(lease, now):
			return c.beingRun()
		case decision != eventing.DecidePark:
			return errUnchanged
		}
		if err := s.rely(ctx, lease); err != nil {
			return err
		}
		if err := c.park(d); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultParking)
	})
	return decision, run, err
}

func targetOf(d eventing.Delivery) eventing.Target {
	return eventing.Target{EventID: d.EventID, Consumer: d.Consumer}
}

// beingRun is the error of whoever finds the event claimed. A process that is dead is not to wait.
func (c *change) beingRun() error {
	if err := eventing.Fault(c.ctx, eventing.FaultArrived); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", c.doc.target(), errBeingRun)
}

// found reads what the arrival table needs.
func (c *change) found(d eventing.Delivery) (f eventing.Found, err error) {
	f.Processed, f.InboxGeneration = c.doc.processed(), c.doc.Generation
	_, dl, err := c.dead()
	if err != nil {
		return f, err
	}
	if dl != nil {
		f.Discarded = dl.Resolution == string(eventing.Discarded)
		f.Replayed = dl.Status == string(eventing.StatusReplayed)
		f.DeadGeneration = dl.Generation
	}
	row := c.doc.Delivery
	switch {
	case row != nil:
		f.State, f.Generation = eventing.State(row.State), row.Generation
		f.Attempts, f.PriorAttempts, f.History = row.Attempts, row.PriorAttempts, fromAttempts(row.History)
	case dl != nil && d.Generation > 0: // forced, or it died before it became a delivery; its history goes on
		f.Attempts, f.PriorAttempts, f.History = dl.AttemptCount, dl.AttemptCount, fromAttempts(dl.AttemptHistory)
	}
	if d.OrderingKey == "" || f.Processed && !d.Force {
		return f, nil
	}
	head, err := c.s.headOf(c.ctx, d.Consumer, d.OrderingKey, c.doc.ID)
	if err != nil {
		return f, err
	}
	f.KeyBusy = head != nil
	f.Ahead = head != nil && row != nil && head.Delivery.Position < row.Position
	return f, nil
}

// headOf returns the first delivery of a key, but for the one with this _id; nil if there is
// none.
func (s *Store) headOf(ctx context.Context, consumer, key, but string) (*inboxDoc, error) {
	return findOne[inboxDoc](ctx, s.inbox,
		bson.D{eq("delivery.consumer", consumer), eq("delivery.orderingKey", key), eq("_id", bson.D{eq("$ne", but)})},
		options.FindOne().SetSort(ascending("delivery.position")).SetProjection(bson.D{eq("delivery.payload", 0), eq("delivery.history", 0)}))
}

// park stores a delivery behind the others of its key. A dead one that is replayed out of
// turn has its place already.
func (c *change) park(d eventing.Delivery) error {
	known := c.doc.Delivery
	if known == nil {
		position, err := c.s.draw(c.ctx, positionCounter, 1)
		if err != nil {
			return err
		}
		c.doc.Delivery = newDeliveryDoc(d, eventing.StateParked, position)
		return nil
	}
	c.doc.Delivery = newDeliveryDoc(d, eventing.StateParked, known.Position)
	c.doc.Delivery.Attempts, c.doc.Delivery.PriorAttempts, c.doc.Delivery.History = known.Attempts, known.PriorAttempts, known.History
	return nil
}

// claimed reports whether a handler is running on the event. Under a later lease of the partition it does
// not count: what it does is refused.
func (c *change) claimed(lease *eventing.Lease, now time.Time) bool {
	claim := c.doc.Claim
	return claim != nil && claim.Until.After(now) && (lease == nil || lease.Token <= claim.Lease)
}
