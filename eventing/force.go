package eventing

import "fmt"

// ToForce is what a store has about an event that is to be run again at a consumer, read in one
// transaction.
type ToForce struct {
	Target
	Died       bool // there is a dead letter, of which the next three are
	Status     ReviewStatus
	Resolution Resolution
	Generation int

	Processed       bool // an inbox row exists
	InboxGeneration int
	Delivery        State
	Sent            int // the highest generation of outbox rows for the consumer
}

// NextGeneration is the rule of [DeadLetterStore].Force: the generation of the run, or why
// there is to be none. expected is the dead letter's generation, or [AnyGeneration].
func (f ToForce) NextGeneration(expected int) (int, error) {
	switch {
	case f.Died && f.Status != StatusClosed:
		return 0, fmt.Errorf("dead letter %s is %s: forcing it, rather than replaying it, is %w", f.Target, f.Status, ErrState)
	case f.Died:
		if err := unchanged(f.Target, f.Generation, expected); err != nil {
			return 0, err
		}
	}
	switch {
	case !f.Processed && f.Resolution == Discarded:
		return 0, fmt.Errorf("%s has not been processed there, so that there is nothing to force; "+
			"its dead letter is discarded, so that it cannot be replayed either; append the event anew, with another id: %w", f.Target, ErrNotFound)
	case !f.Processed:
		return 0, fmt.Errorf("%s has not been processed there, so that there is nothing to force; if it has an open dead letter, replay that: %w", f.Target, ErrNotFound)
	case f.Delivery != StateNone:
		return 0, fmt.Errorf("a run of %s is under way (%s): forcing another is %w", f.Target, f.Delivery, ErrState)
	case f.Sent > f.InboxGeneration && f.Resolution != Discarded: // arrival would take the two for one
		return 0, fmt.Errorf("an earlier run of %s is on its way (if its broker has lost it, requeue it): forcing another is %w", f.Target, ErrState)
	}
	return max(f.Generation, f.InboxGeneration, f.Sent) + 1, nil
}

// ErrNoPayload is for a store that keeps no payload of what is to be forced.
func (f ToForce) ErrNoPayload() error {
	return fmt.Errorf("the payload of %s is not kept any more (see PrunerConfig.SentRetention), so that it cannot be forced: %w", f.EventID, ErrNotFound)
}

// Unchanged fails with [ErrChanged] unless the dead letter has the generation that somebody
// expects, or that is [AnyGeneration].
func (d *DeadLetter) Unchanged(expected int) error {
	return unchanged(d.Target(), d.Generation, expected)
}

func unchanged(t Target, generation, expected int) error {
	if expected == AnyGeneration || expected == generation {
		return nil
	}
	return fmt.Errorf("dead letter %s has generation %d, not %d: it has %w; look at it again", t, generation, expected, ErrChanged)
}
