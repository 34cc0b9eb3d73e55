package mongostore

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Succeed implements [eventing.ConsumerStore]. Effect and Finish get a [*Tx]. While Effect
// runs, the event is claimed: it is run by nobody else until r.ClaimUntil, or until a later lease of its partition.
func (s *Store) Succeed(ctx context.Context, r eventing.Success) error {
	tx := &Tx{store: s}
	defer tx.end(ctx)
	var claimed *inboxDoc
	if r.Effect != nil {
		var err error
		if claimed, err = s.claim(ctx, r); err != nil {
			return err
		}
		if err := r.Effect(ctx, tx); err != nil {
			s.unclaim(ctx, claimed)
			return err
		}
	}
	if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
		return err
	}
	return s.succeed(ctx, r, tx, claimed)
}

func (s *Store) succeed(ctx context.Context, r eventing.Success, tx *Tx, claimed *inboxDoc) error {
	finished, crashed := false, false
	var ops []op
	err := s.changeFrom(ctx, targetOf(r.Delivery), s.expected(ctx, r.Run, claimed), func(c *change) error {
		if err := c.concludable(r.Run, claimed); err != nil {
			return err
		}
		c.doc.ProcessedAt, c.doc.ExpiresAt, c.doc.Generation, c.doc.Claim = r.Now, r.InboxUntil, r.Generation, nil
		if err := c.endTrouble(r.Now, r.DeadLetterUntil); err != nil {
			return err
		}
		if !finished && r.Finish != nil {
			if err := r.Finish(ctx, tx); err != nil {
				return err
			}
		}
		if !finished {
			var err error
			if ops, err = tx.ops(ctx); err != nil {
				return err
			}
		}
		finished = true
		c.then(ops...)
		err := eventing.Fault(ctx, eventing.FaultConcluding)
		crashed = err != nil
		return err
	})
	if err != nil && !crashed {
		s.unclaim(ctx, claimed)
	}
	return err
}

// expected is what the target's document will be, if it is as it was left; nil: it has to be
// read.
func (s *Store) expected(ctx context.Context, r eventing.Run, claimed *inboxDoc) *change {
	switch {
	case claimed != nil:
		return &change{s: s, ctx: ctx, doc: *claimed, rev: claimed.Rev}
	case r.Found == eventing.StateNone && r.Generation == 0:
		return s.fresh(ctx, targetOf(r.Delivery))
	}
	return nil
}

// changeFrom is change, with a first try on what the document probably is.
func (s *Store) changeFrom(ctx context.Context, t eventing.Target, expected *change, decide func(c *change) error) error {
	if expected != nil {
		if err := decide(expected); errors.Is(err, errUnchanged) {
			return nil
		} else if err != nil {
			return err
		}
		if won, err := expected.commit(); won || err != nil {
			return err
		}
	}
	return s.change(ctx, t, decide)
}

// claim has others not run the event as well.
func (s *Store) claim(ctx context.Context, r eventing.Success) (*inboxDoc, error) {
	claim := &claimDoc{Token: eventing.NewID(), Until: r.ClaimUntil}
	if r.ClaimUntil.IsZero() {
		claim.Until = r.Now.Add(defaultClaim)
	}
	if r.Lease != nil {
		claim.Lease = r.Lease.Token
	}
	var last *change
	err := s.changeFrom(ctx, targetOf(r.Delivery), s.expected(ctx, r.Run, nil), func(c *change) error {
		last = c
		if err := c.asFound(r.Run); err != nil {
			return err
		}
		if c.claimed(r.Lease, r.Now) {
			return c.beingRun()
		}
		if err := c.abortBatch(); err != nil {
			return err
		}
		c.doc.Claim = claim
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &last.doc, nil
}

// unclaim ends a claim, so that the event can be run at once. If that fails, the claim runs out
// by itself.
func (s *Store) unclaim(ctx context.Context, claimed *inboxDoc) {
	if claimed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completionTimeout)
	defer cancel()
	_ = s.changeFrom(ctx, claimed.target(), s.expected(ctx, eventing.Run{}, claimed), func(c *change) error {
		if c.doc.Claim == nil || c.doc.Claim.Token != claimed.Claim.Token {
			return errUnchanged
		}
		c.doc.Claim = nil
		return nil
	})
}

// concludable checks that nobody else has concluded the run or taken it over.
func (c *change) concludable(r eventing.Run, claimed *inboxDoc) error {
	if err := c.s.rely(c.ctx, r.Lease); err != nil {
		return err
	}
	if claimed != nil && (c.doc.Claim == nil || c.doc.Claim.Token != claimed.Claim.Token) {
		return eventing.ErrConflict
	}
	return c.asFound(r)
}

// asFound checks that the delivery is as it was when its run began.
func (c *change) asFound(r eventing.Run) error {
	if c.doc.processed() && (!r.Force || c.doc.Generation >= r.Generation) {
		return eventing.ErrConflict
	}
	row := c.doc.Delivery
	asFound := row == nil
	if r.Found != eventing.StateNone {
		asFound = row != nil && row.State == string(r.Found) && row.Generation == r.Generation && row.ClaimToken == r.ClaimToken
	}
	if !asFound {
		return eventing.ErrConflict
	}
	return nil
}

// endTrouble ends what a delivery may have been in: it is processed.
func (c *change) endTrouble(now, deadLetterUntil time.Time) error {
	c.doc.Delivery = nil
	_, dl, err := c.dead()
	if err != nil || dl == nil || !dl.open() {
		return err
	}
	dl.Status, dl.Resolution, dl.UpdatedAt = string(eventing.StatusClosed), string(eventing.Resolved), now
	if !deadLetterUntil.IsZero() {
		dl.ExpiresAt = deadLetterUntil
	}
	c.putDead(*dl)
	return nil
}

// putDead replaces the target's dead letter.
func (c *change) putDead(dl deadEntry) {
	c.then(op{Do: doBury, Death: &deathDoc{EventID: c.doc.EventID, Entry: dl}})
}

// Forget implements [eventing.ConsumerStore]. It does nothing to a delivery whose event has
// not been processed after all: the conflict was another one.
func (s *Store) Forget(ctx context.Context, r eventing.Run, now time.Time) error {
	return s.change(ctx, targetOf(r.Delivery), func(c *change) error {
		if err := s.rely(ctx, r.Lease); err != nil {
			return err
		}
		_, dl, err := c.dead()
		d := c.doc.Delivery
		switch {
		case err != nil:
			return err
		case !c.doc.processed():
			return errUnchanged
		case d != nil && d.Force && d.Generation > c.doc.Generation, dl != nil && dl.Generation > c.doc.Generation:
			return errUnchanged // a forced run is yet to do what it has to
		case d == nil && (dl == nil || !dl.open()):
			return errUnchanged
		}
		return c.endTrouble(now, time.Time{})
	})
}
