package mongostore

import (
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Fail implements [eventing.ConsumerStore].
func (s *Store) Fail(ctx context.Context, f eventing.Failure) error {
	return s.withFinish(ctx, f, func(c *change) error {
		if err := c.concludable(f.Run, nil); err != nil {
			return err
		}
		if c.doc.Delivery != nil && c.doc.Delivery.Attempts != f.Run.Attempts {
			return eventing.ErrConflict
		}
		if err := c.recordFailure(f); err != nil {
			return err
		}
		if f.State != eventing.StateDead {
			return c.keepDead(f)
		}
		return c.die(f, deathOf(f), f.Attempts-f.PriorAttempts)
	})
}

// Quarantine implements [eventing.ConsumerStore].
func (s *Store) Quarantine(ctx context.Context, f eventing.Failure) error {
	return s.withFinish(ctx, f, func(c *change) error {
		if err := s.rely(ctx, f.Lease); err != nil {
			return err
		}
		_, dl, err := c.dead()
		if err != nil {
			return err
		}
		if dl != nil && dl.Status != string(eventing.StatusReplayed) {
			return errUnchanged // the broker delivers it once more
		}
		return c.quarantine(f)
	})
}

// withFinish changes the target of a failure, Finish coming last, once.
func (s *Store) withFinish(ctx context.Context, f eventing.Failure, decide func(c *change) error) error {
	tx := &Tx{store: s}
	defer tx.end(ctx)
	finished := false
	var ops []op
	return s.change(ctx, targetOf(f.Delivery), func(c *change) error {
		if err := decide(c); err != nil {
			return err
		}
		if !finished && f.Finish != nil {
			if err := f.Finish(ctx, tx); err != nil {
				return err
			}
			var err error
			if ops, err = tx.ops(ctx); err != nil {
				return err
			}
		}
		finished = true
		c.then(ops...)
		return eventing.Fault(ctx, eventing.FaultFailing)
	})
}

// recordFailure stores the delivery, which is then nobody's claim any more.
func (c *change) recordFailure(f eventing.Failure) error {
	position := int64(0)
	if c.doc.Delivery != nil {
		position = c.doc.Delivery.Position
	} else {
		var err error
		if position, err = c.s.draw(c.ctx, positionCounter, 1); err != nil {
			return err
		}
	}
	d := newDeliveryDoc(f.Delivery, f.State, position)
	d.Attempts, d.PriorAttempts, d.History, d.DueAt = f.Attempts, f.PriorAttempts, toAttempts(f.History), f.DueAt
	c.doc.Delivery = d
	return nil
}

// keepDead pushes the expiry of a replayed dead letter out while the replay is being retried.
func (c *change) keepDead(f eventing.Failure) error {
	_, dl, err := c.dead()
	if err == nil && dl != nil && dl.open() && dl.ExpiresAt.Before(f.DeadLetterUntil) {
		dl.ExpiresAt = f.DeadLetterUntil
		c.putDead(*dl)
	}
	return err
}

func deathOf(f eventing.Failure) deadEntry {
	return deadEntry{
		Consumer: f.Consumer, Stage: string(f.Stage), ReasonCode: string(f.Reason), Message: f.Message, AttemptCount: f.Attempts,
		AttemptHistory: toAttempts(f.History), OrderingKey: f.OrderingKey, Generation: f.Generation, ExpiresAt: f.DeadLetterUntil,
	}
}

// die opens a dead letter, or opens it again: it is pending, and what people did to it is
// remembered. attempts are the handler's since its last death.
func (c *change) die(f eventing.Failure, dl deadEntry, attempts int) error {
	if err := c.bury(dl, f.EventType, f.Payload, attempts, f.Now); err != nil {
		return err
	}
	if f.OutboxSeq != 0 {
		c.then(op{Do: doTakeBack, Seq: f.OutboxSeq})
	}
	return nil
}

func (c *change) bury(dl deadEntry, eventType string, payload []byte, attempts int, now time.Time) error {
	_, known, err := c.dead()
	if err != nil {
		return err
	}
	dl.Status, dl.CreatedAt, dl.UpdatedAt, dl.Acts = string(eventing.StatusPending), now, now, []actDoc{}
	if known != nil {
		dl.CreatedAt, dl.Acts, dl.Generation = known.CreatedAt, known.Acts, max(dl.Generation, known.Generation)
	}
	c.doc.Died = true
	c.then(op{Do: doBury, Death: &deathDoc{
		EventID: c.doc.EventID, Entry: dl, Dies: true, EventType: eventType, Attempts: attempts, Payload: notNil(payload),
	}})
	return nil
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// quarantine opens a dead letter without a delivery, whose attempts it counts itself.
func (c *change) quarantine(f eventing.Failure) error {
	dl := deathOf(f)
	_, known, err := c.dead()
	if err != nil {
		return err
	}
	if known != nil {
		dl.AttemptCount, dl.AttemptHistory = goOn(known, f.History)
	}
	return c.die(f, dl, f.Attempts)
}

// maxHistory is how many attempts are kept, as everywhere.
const maxHistory = 100

// goOn appends attempts to the history of a known dead letter, numbered onwards.
func goOn(known *deadEntry, more []eventing.Attempt) (count int, history []attemptDoc) {
	count, history = known.AttemptCount, slices.Clone(known.AttemptHistory)
	for _, a := range toAttempts(more) {
		count++
		a.Attempt = count
		history = append(history, a)
	}
	return count, history[max(0, len(history)-maxHistory):]
}
