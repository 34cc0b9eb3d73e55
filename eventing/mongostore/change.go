package mongostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
)

// change is a change of what a consumer has of an event. It reads what it depends on, and
// says what is to be; all of that happens, or nothing, by one conditional write of the target's
// document, which holds only if nobody has changed that since. What follows in other documents
// is written down in it as redo, and done by whoever comes next.
type change struct {
	s   *Store
	ctx context.Context
	doc inboxDoc // as it is to be
	rev int64    // as it was found; 0: there was none
	ops []op

	event     *deadDoc // the dead letters of the event, once asked for
	eventRead bool
}

// errUnchanged ends a change without an error that finds nothing to do.
var errUnchanged = errors.New("mongostore: nothing to change")

var errOvertaken = errors.New("mongostore: the document is changed by others all the time")

// change has decide say what is to become of a target, again if somebody else was faster. Its
// error ends it, and nothing has been written.
func (s *Store) change(ctx context.Context, t eventing.Target, decide func(c *change) error) error {
	for try := range maxTries {
		c, err := s.look(ctx, t)
		if err != nil {
			return err
		}
		if err := decide(c); errors.Is(err, errUnchanged) {
			return nil
		} else if err != nil {
			return err
		}
		won, err := c.commit()
		if won || err != nil {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", t, errOvertaken)
}

// pause waits a little before another try.
func pause(ctx context.Context, try int) error {
	longest := min(int64(1+try), 20) * int64(time.Millisecond)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(rand.Int64N(longest))): //nolint:gosec // not a secret
		return nil
	}
}

// look reads a target's document, completed.
func (s *Store) look(ctx context.Context, t eventing.Target) (*change, error) {
	for range maxTries {
		doc, err := findOne[inboxDoc](ctx, s.inbox, bson.D{eq("_id", inboxID(t))})
		if err != nil {
			return nil, err
		}
		if doc == nil {
			return s.fresh(ctx, t), nil
		}
		again := false
		switch {
		case doc.Redo != nil:
			again, err = true, s.complete(ctx, doc)
		case doc.Claim != nil && doc.Claim.Batch != "":
			again, err = s.completeBatch(ctx, doc.Claim.Batch)
		}
		if err != nil {
			return nil, err
		}
		if !again {
			return &change{s: s, ctx: ctx, doc: *doc, rev: doc.Rev}, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", t, errOvertaken)
}

// fresh is a change of a target of which nothing is known.
func (s *Store) fresh(ctx context.Context, t eventing.Target) *change {
	return &change{s: s, ctx: ctx, doc: inboxDoc{ID: inboxID(t), Consumer: t.Consumer, EventID: t.EventID}}
}

// dead returns the target's dead letter and its event; nil if there is none.
func (c *change) dead() (*deadDoc, *deadEntry, error) {
	if !c.doc.Died {
		return nil, nil, nil
	}
	event, err := c.deadEvent()
	if event == nil || err != nil {
		return nil, nil, err
	}
	if e := event.entry(c.doc.Consumer); e != nil {
		known := *e
		return event, &known, nil
	}
	return nil, nil, nil
}

// deadEvent returns the dead letters of the event; nil if there are none.
func (c *change) deadEvent() (_ *deadDoc, err error) {
	if !c.eventRead {
		c.event, err = findOne[deadDoc](c.ctx, c.s.dead, bson.D{eq("_id", c.doc.EventID)})
		c.eventRead = err == nil
	}
	return c.event, err
}

// then adds what follows from the change.
func (c *change) then(ops ...op) { c.ops = append(c.ops, ops...) }

// nextRev grows also for a document that is made anew.
func nextRev(rev int64) int64 { return max(rev+1, time.Now().UnixMicro()) }

// commit writes the document, if nobody else has, and then does what follows. won is false
// if somebody was faster.
func (c *change) commit() (won bool, err error) {
	c.doc.Rev = nextRev(c.rev)
	c.doc.Redo = nil
	if len(c.ops) > 0 {
		for i := range c.ops {
			if c.ops[i].Rev = c.doc.Rev; c.ops[i].Death != nil {
				c.ops[i].Death.Entry.Rev = c.doc.Rev
			}
		}
		c.doc.Redo = &redoDoc{At: time.Now(), Ops: c.ops}
	}
	switch {
	case c.rev == 0 && c.doc.empty():
		return true, nil
	case c.rev == 0:
		_, err = c.s.inbox.InsertOne(c.ctx, c.doc)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		won = err == nil
	case c.doc.empty():
		var gone *mongo.DeleteResult
		gone, err = c.s.inbox.DeleteOne(c.ctx, bson.D{eq("_id", c.doc.ID), eq("rev", c.rev)})
		won = err == nil && gone.DeletedCount == 1
	default:
		var replaced *mongo.UpdateResult
		replaced, err = c.s.inbox.ReplaceOne(c.ctx, bson.D{eq("_id", c.doc.ID), eq("rev", c.rev)}, c.doc)
		won = err == nil && replaced.MatchedCount == 1
	}
	if err != nil || !won || c.doc.Redo == nil {
		return won, typed(err)
	}
	return true, c.s.finish(c.ctx, func(ctx context.Context) error { return c.s.complete(ctx, &c.doc) })
}

// finish does what follows from a commit. The commit stands: what cannot be done now, others
// will do, and that is no error. It goes on if the context of the commit ends.
func (s *Store) finish(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completionTimeout)
	defer cancel()
	var crash *crash
	if err := do(ctx); errors.As(err, &crash) {
		return crash.error
	}
	return nil
}

// crash is an injected fault.
type crash struct{ error }

func (c *crash) Unwrap() error { return c.error }

// complete does what follows from a change, and then takes that off the document.
func (s *Store) complete(ctx context.Context, doc *inboxDoc) error {
	if err := s.redo(ctx, doc.Redo.Ops); err != nil {
		return fmt.Errorf("complete what was decided about %s: %w", doc.target(), err)
	}
	same := bson.D{eq("_id", doc.ID), eq("rev", doc.Rev)}
	rest := *doc
	rest.Redo = nil
	var err error
	if rest.empty() {
		_, err = s.inbox.DeleteOne(ctx, same)
	} else {
		_, err = s.inbox.UpdateOne(ctx, same, bson.D{{Key: "$unset", Value: bson.D{eq("redo", "")}}})
	}
	return typed(err)
}

// sweepEvery is how often it is looked for what others have left.
const sweepEvery = time.Second

// sweep completes what others have left, every now and then.
func (s *Store) sweep(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	due := now.Sub(s.swept).Abs() >= sweepEvery
	s.mu.Unlock()
	if !due {
		return nil
	}
	err := s.completeAll(ctx, now)
	s.mu.Lock()
	s.swept = now
	s.mu.Unlock()
	return err
}

func (s *Store) completeAll(ctx context.Context, now time.Time) error {
	left, err := find[inboxDoc](ctx, s.inbox, bson.D{eq("redo.at", bson.D{eq("$exists", true)})})
	if err != nil {
		return err
	}
	for i := range left {
		err = errors.Join(err, s.complete(ctx, &left[i]))
	}
	return errors.Join(err, s.sweepCommits(ctx, now))
}
