package mongostore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Review implements [eventing.DeadLetterStore].
func (s *Store) Review(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.change(ctx, t, func(c *change) error {
		_, dl, err := c.openFor(act, eventing.StatusPending)
		if err != nil {
			return err
		}
		dl.Status = string(eventing.StatusReviewed)
		dl.record(act)
		c.putDead(*dl)
		return nil
	})
}

// Schedule implements [eventing.DeadLetterStore].
func (s *Store) Schedule(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.change(ctx, t, func(c *change) error {
		_, dl, err := c.openFor(act, eventing.StatusPending, eventing.StatusReviewed)
		if err != nil {
			return err
		}
		if act.DueAt.IsZero() && dl.ScheduledAt.IsZero() {
			return fmt.Errorf("dead letter %s is not scheduled: %w", t, eventing.ErrState)
		}
		dl.Status, dl.ScheduledAt = string(eventing.StatusReviewed), act.DueAt
		dl.record(act)
		c.putDead(*dl)
		return eventing.Fault(ctx, eventing.FaultScheduling)
	})
}

// Discard implements [eventing.DeadLetterStore]. What the key holds next is its head then.
func (s *Store) Discard(ctx context.Context, t eventing.Target, act eventing.Act) error {
	return s.change(ctx, t, func(c *change) error {
		_, dl, err := c.openFor(act, eventing.StatusPending, eventing.StatusReviewed, eventing.StatusReplayed)
		if err != nil {
			return err
		}
		c.discard(*dl, act)
		return eventing.Fault(ctx, eventing.FaultDiscarding)
	})
}

func (c *change) discard(dl deadEntry, act eventing.Act) {
	c.doc.Delivery = nil
	dl.Status, dl.Resolution, dl.ScheduledAt = string(eventing.StatusClosed), string(eventing.Discarded), time.Time{}
	dl.record(act)
	c.putDead(dl)
	c.then(op{Do: doDropReplays, EventID: c.doc.EventID, Consumer: c.doc.Consumer, Generation: dl.Generation})
}

// openFor finds the dead letter that somebody wants to act on.
func (c *change) openFor(act eventing.Act, allowed ...eventing.ReviewStatus) (*deadDoc, *deadEntry, error) {
	event, dl, err := c.dead()
	switch {
	case err != nil:
		return nil, nil, err
	case dl == nil:
		return nil, nil, fmt.Errorf("dead letter %s: %w", c.doc.target(), eventing.ErrNotFound)
	case !slices.Contains(allowed, eventing.ReviewStatus(dl.Status)):
		return nil, nil, fmt.Errorf("dead letter %s is %s and cannot be %s: %w", c.doc.target(), dl.Status, act.Act, eventing.ErrState)
	}
	return event, dl, nil
}
