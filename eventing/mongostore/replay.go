package mongostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Replay implements [eventing.DeadLetterStore].
func (s *Store) Replay(ctx context.Context, t eventing.Target, generation int, act eventing.Act) error {
	return s.change(ctx, t, func(c *change) error {
		event, dl, err := c.openFor(act, eventing.StatusPending, eventing.StatusReviewed)
		if err != nil {
			return err
		}
		letter := event.letter(dl)
		if err := letter.Unchanged(generation); err != nil {
			return err
		}
		if err := c.replay(event, *dl, act, nil); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultReplaying)
	})
}

// replay sends a dead letter to its consumer again. payload replaces that of the event, unless
// nil.
func (c *change) replay(event *deadDoc, dl deadEntry, act eventing.Act, payload []byte) error {
	row := eventing.ReplayRow(event.letter(&dl), dl.Generation+1, act.At)
	row.Force = c.doc.processed() && c.doc.Generation < dl.Generation // it died of a forced run
	if d := c.doc.Delivery; d != nil {
		again := *d
		again.Generation, again.PriorAttempts = row.Generation, d.Attempts
		c.doc.Delivery = &again
	}
	dl.Status, dl.Generation, dl.ScheduledAt = string(eventing.StatusReplayed), row.Generation, time.Time{}
	dl.record(act)
	return c.sendAgain(row, &deathDoc{EventID: c.doc.EventID, Entry: dl, Payload: payload})
}

// sendAgain has a row follow from the change, and before it what becomes of the dead letter.
func (c *change) sendAgain(row eventing.OutboxRow, death *deathDoc) (err error) {
	doc := newOutboxDoc(row)
	if doc.Seq, err = c.s.draw(c.ctx, outboxCounter, 1); err != nil {
		return err
	}
	insert, err := insertOp(outboxCollection, doc)
	if death != nil {
		c.then(op{Do: doBury, Death: death})
	}
	c.then(insert)
	return err
}

// ReplayScheduled implements [eventing.DispatchStore].
func (s *Store) ReplayScheduled(ctx context.Context, now time.Time, limit int) (n int, err error) {
	docs, err := find[deadDoc](ctx, s.dead, bson.D{eq("consumers.scheduledAt", bson.D{eq("$lte", now)})},
		options.Find().SetProjection(bson.D{eq("payload", 0), eq("payloadSnapshot", 0)}))
	if err != nil {
		return 0, err
	}
	var scheduled []eventing.DeadLetter
	for i := range docs {
		for j := range docs[i].Consumers {
			if e := &docs[i].Consumers[j]; e.due(now) {
				scheduled = append(scheduled, docs[i].letter(e))
			}
		}
	}
	slices.SortFunc(scheduled, func(a, b eventing.DeadLetter) int {
		return cmp.Or(a.ScheduledAt.Compare(b.ScheduledAt), a.Place().Compare(b.Place()))
	})
	for _, dl := range scheduled[:min(len(scheduled), max(limit, 0))] {
		done, replayErr := s.replayDue(ctx, dl.Target(), now)
		if replayErr != nil {
			err = errors.Join(err, fmt.Errorf("scheduled replay of %s: %w", dl.Target(), replayErr))
		} else if done {
			n++
		}
	}
	return n, err
}

// replayDue replays a dead letter if it is due still.
func (s *Store) replayDue(ctx context.Context, t eventing.Target, now time.Time) (done bool, err error) {
	err = s.change(ctx, t, func(c *change) error {
		event, dl, err := c.dead()
		if err != nil {
			return err
		}
		if done = dl != nil && dl.due(now); !done {
			return errUnchanged // another process was faster
		}
		letter := event.letter(dl)
		if err := c.replay(event, *dl, letter.ScheduledReplay(now), nil); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultReplaying)
	})
	return done, err
}
