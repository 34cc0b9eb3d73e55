package eventing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// DeadLetters is the operator's access to the dead letters of a store. Acts are
// recorded with who, when and why.
type DeadLetters struct {
	store DeadLetterStore
	now   func() time.Time
}

// DeadLettersOption adjusts a [DeadLetters].
type DeadLettersOption func(*DeadLetters)

// WithClock sets the clock by which acts are dated. Default: time.Now.
func WithClock(now func() time.Time) DeadLettersOption {
	return func(d *DeadLetters) { d.now = now }
}

// NewDeadLetters returns the dead letters of a store.
func NewDeadLetters(store DeadLetterStore, opts ...DeadLettersOption) *DeadLetters {
	d := &DeadLetters{store, time.Now}
	for _, o := range opts {
		o(d)
	}
	return d
}

// List returns the dead letters that the filter selects, the oldest first.
func (d *DeadLetters) List(ctx context.Context, f DeadLetterFilter) (list []DeadLetter, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 10_000)
	if f.TenantID == "" {
		return d.store.DeadLetters(ctx, f)
	}
	err = d.Each(ctx, f, func(dl DeadLetter) error {
		list = append(list, dl)
		return nil
	})
	return list, err
}

// pageSize bounds what is in memory of dead letters that are gone through.
const pageSize = 500

// Each calls fn for each dead letter that the filter selects, the oldest first; f.Limit, if
// positive, bounds how many. It reads them page by page and holds nothing open meanwhile:
// fn may act on them, others may come and go. An error of fn ends it and is returned as it is.
func (d *DeadLetters) Each(ctx context.Context, f DeadLetterFilter, fn func(DeadLetter) error) error {
	left := f.Limit
	for {
		f.Limit = pageSize
		page, err := d.store.DeadLetters(ctx, f)
		if err != nil {
			return err
		}
		for _, dl := range page {
			f.After = dl.Place()
			if f.TenantID != "" && dl.tenant() != f.TenantID {
				continue
			}
			if err := fn(dl); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// tenant returns the envelope's, which is empty for bytes that do not decode.
func (d *DeadLetter) tenant() string {
	if metadata, ok := scanHeader(d.Payload, 0); ok {
		return metadata["tenant_id"]
	}
	e, _ := DecodeEnvelope(d.Payload)
	return e.TenantID
}

// Review marks a pending dead letter as looked at.
func (d *DeadLetters) Review(ctx context.Context, t Target, by, note string) error {
	act, err := d.act("reviewed", by, note)
	if err != nil {
		return err
	}
	return d.store.Review(ctx, t, act)
}

// Schedule has a pending or reviewed dead letter replayed by itself at a later time, by the
// dispatchers of its store. It is reviewed until then; another Schedule sets another
// time, and Unschedule, Replay or Discard end it.
func (d *DeadLetters) Schedule(ctx context.Context, t Target, at time.Time, by, note string) error {
	act, err := d.act("scheduled", by, note)
	if err != nil {
		return err
	}
	if wait := at.Sub(act.At); wait <= 0 || wait > maxSchedule {
		return fmt.Errorf("schedule a replay: %s is not within a year from now", at.Format(time.RFC3339))
	}
	act.DueAt = at.UTC().Truncate(time.Microsecond) // as databases keep it
	return d.store.Schedule(ctx, t, act)
}

const maxSchedule = 366 * 24 * time.Hour

// ScheduledReplay is the act of a replay that its schedule asked for.
func (d *DeadLetter) ScheduledReplay(now time.Time) Act {
	return Act{Act: "replayed", By: "scheduler", At: now, Note: "due " + d.ScheduledAt.Format(time.RFC3339)}
}

// Unschedule takes back the time that Schedule has set. The dead letter stays reviewed.
func (d *DeadLetters) Unschedule(ctx context.Context, t Target, by, note string) error {
	act, err := d.act("unscheduled", by, note)
	if err != nil {
		return err
	}
	return d.store.Schedule(ctx, t, act)
}

// Replay sends a pending or reviewed dead letter to its consumer again, with a
// fresh budget of attempts. Other consumers do not see it. When it succeeds,
// the dead letter closes as resolved; when it fails for good, it is pending
// again.
func (d *DeadLetters) Replay(ctx context.Context, t Target, by, note string) error {
	return d.ReplayAs(ctx, t, ReplayOptions{By: by, Note: note, Generation: AnyGeneration})
}

// ReplayOptions say who replays or forces a dead letter, and as what it was seen.
type ReplayOptions struct {
	By, Note string
	// Generation that the dead letter has to have, as it was when somebody decided to
	// replay it: so that a plan which is carried out twice replays it once. [AnyGeneration]:
	// any.
	Generation int
	// Plan is the ID of the plan that this is part of; it is recorded in the act.
	Plan string
}

// ReplayAs is [DeadLetters.Replay] with options. It returns [ErrState] if the dead letter is
// neither pending nor reviewed, and [ErrChanged] if it has another generation than
// expected. After a crash it has happened or not: the acts of the dead letter say so.
func (d *DeadLetters) ReplayAs(ctx context.Context, t Target, o ReplayOptions) error {
	return d.send(ctx, "replayed", t, o, d.store.Replay)
}

// Force runs an event again that the consumer has processed, under a new generation: the
// effect happens once more. [ErrNotFound] if it has not been processed (replay it), or no
// longer has a payload; [ErrState] if the event has an open dead letter there (replay it),
// or a run of it is under way. Fails the run for good, the event has a pending dead
// letter; it counts as processed all the while. Where it has a dead letter, the act is
// recorded there. A consumer may refuse it (Policy.RefuseForce): then nothing runs.
func (d *DeadLetters) Force(ctx context.Context, t Target, by, note string) error {
	return d.ForceAs(ctx, t, ReplayOptions{By: by, Note: note, Generation: AnyGeneration})
}

// ForceAs is [DeadLetters.Force] with options. The generation is that of the dead letter; an
// event without one has any.
func (d *DeadLetters) ForceAs(ctx context.Context, t Target, o ReplayOptions) error {
	return d.send(ctx, "forced", t, o, d.store.Force)
}

func (d *DeadLetters) send(ctx context.Context, what string, t Target, o ReplayOptions,
	store func(context.Context, Target, int, Act) error,
) error {
	act, err := d.act(what, o.By, o.Note)
	if err != nil {
		return err
	}
	if len(o.Plan) > maxNameBytes {
		return fmt.Errorf("act on a dead letter: the ID of the plan may have %d bytes", maxNameBytes)
	}
	act.Plan = o.Plan
	if err := store(ctx, t, o.Generation, act); err != nil {
		return err
	}
	d.store.Wake()
	return nil
}

// Discard gives an open dead letter up; note must say why. The consumer will
// not handle the event any more, and what was parked behind it goes on.
func (d *DeadLetters) Discard(ctx context.Context, t Target, by, note string) error {
	if strings.TrimSpace(note) == "" {
		return errors.New("discard a dead letter: a note that says why is needed")
	}
	act, err := d.act("discarded", by, note)
	if err != nil {
		return err
	}
	return d.store.Discard(ctx, t, act)
}

const maxNoteBytes = 4096

func (d *DeadLetters) act(what, by, note string) (Act, error) {
	if strings.TrimSpace(by) == "" {
		return Act{}, errors.New("act on a dead letter: by is empty; say who does it")
	}
	if len(note) > maxNoteBytes || len(by) > maxNameBytes {
		return Act{}, fmt.Errorf("act on a dead letter: the note may have %d bytes, the name %d", maxNoteBytes, maxNameBytes)
	}
	return Act{Act: what, By: by, At: d.now().UTC(), Note: note}, nil
}
