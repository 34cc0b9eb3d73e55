package eventing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// ApplyConfig says how to carry a plan out.
type ApplyConfig struct {
	// Stores are those of the plan, by name.
	Stores map[string]*DeadLetters
	// By and Note are recorded in the act of each replay, with the plan's ID. By is needed.
	By, Note string
	// Rate is how many dead letters are replayed per second at most, and no less than one
	// an hour. 0: as many as the stores take.
	Rate float64
	// Progress, if not nil, is told after each target.
	Progress func(Applied)
}

// Applied says how far a plan has come.
type Applied struct {
	Plan     string `json:"plan"`
	Targets  int    `json:"targets"`
	Replayed int    `json:"replayed"`        // by this call
	Before   int    `json:"replayed_before"` // by earlier calls, as the acts tell
	Skipped  int    `json:"skipped"`
	Left     int    `json:"left"` // not looked at yet
	// Skips are those skipped, by reason.
	Skips []Skip `json:"skips"`
}

// minRate keeps the time from one replay to the next within what a time.Duration holds, and
// what anybody waits for.
const minRate = 1.0 / 3600

// Apply replays the targets of a plan, in its order, one after the other. When ctx ends it
// finishes the one in hand and returns ctx's error.
//
// After an error, or a crash, it may be called again, also by another process: what the plan
// has replayed is recognised by the act that carries its ID. A target that has another
// generation than planned, or is in a state that allows no replay, is skipped as changed since the
// plan: whatever happens, nothing is replayed twice. Two calls at once share the work, but
// each keeps its own rate, and between them the order is not kept.
func (p *Plan) Apply(ctx context.Context, cfg ApplyConfig) (Applied, error) {
	done := Applied{Plan: p.ID, Targets: p.Targets(), Left: p.Targets(), Skips: []Skip{}}
	if cfg.Rate != 0 && !(cfg.Rate >= minRate) || math.IsInf(cfg.Rate, 0) { // also when it is not a number
		return done, fmt.Errorf("apply a plan: the rate is %g per second; it must be 0, for no limit, or at least %.6f, one an hour", cfg.Rate, minRate)
	}
	if strings.TrimSpace(cfg.By) == "" {
		return done, errors.New("apply a plan: say who does it")
	}
	for _, s := range p.Stores {
		if cfg.Stores[s.Store] == nil && len(s.Targets) > 0 {
			return done, fmt.Errorf("apply a plan: it is also for store %s, which was not given", s.Store)
		}
	}
	a := applier{plan: p, cfg: cfg, done: done, skipped: skips{}, pace: pace{rate: cfg.Rate}}
	for _, s := range p.Stores {
		for _, t := range s.Targets {
			if err := a.target(ctx, cfg.Stores[s.Store], t); err != nil {
				a.done.Skips = a.skipped.list()
				return a.done, err
			}
			a.done.Left--
			if cfg.Progress != nil {
				cfg.Progress(a.done)
			}
		}
	}
	a.done.Skips = a.skipped.list()
	return a.done, nil
}

// applier is one call of Apply.
type applier struct {
	plan    *Plan
	cfg     ApplyConfig
	done    Applied
	skipped skips
	pace    pace
}

// applyTimeout bounds the replay in hand when ctx ends.
const applyTimeout = 30 * time.Second

func (a *applier) target(ctx context.Context, letters *DeadLetters, t PlanTarget) error {
	why, before, err := a.obstacle(ctx, letters, t)
	switch {
	case err != nil:
		return err
	case before:
		a.done.Before++
		return nil
	case why != "":
		a.skip(why, t)
		return nil
	}
	if err := a.pace.wait(ctx); err != nil {
		return err
	}
	// Once begun it is finished.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
	defer cancel()
	replay := letters.ReplayAs
	if t.Force {
		replay = letters.ForceAs
	}
	err = replay(ctx, t.Target(), ReplayOptions{By: a.cfg.By, Note: a.cfg.Note, Generation: t.Generation, Plan: a.plan.ID})
	switch {
	case err == nil:
		a.done.Replayed++
	case errors.Is(err, ErrState), errors.Is(err, ErrChanged), errors.Is(err, ErrNotFound):
		// Somebody was faster, perhaps another Apply of this plan.
		why, before, again := a.obstacle(ctx, letters, t)
		switch {
		case again != nil:
			return again
		case before:
			a.done.Before++
		case why != "":
			a.skip(why, t)
		default: // forced, and the inbox or the payload is gone
			a.skip("cannot be run again: "+strings.ReplaceAll(err.Error(), t.Target().String(), "…"), t)
		}
	default:
		return fmt.Errorf("replay %s: %w", t.Target(), err)
	}
	return nil
}

func (a *applier) skip(why string, t PlanTarget) {
	a.done.Skipped++
	a.skipped.add(cut(why, maxNormalizedBytes), t.Target())
}

// obstacle says why a target cannot be replayed now, or that this plan has done it before.
func (a *applier) obstacle(ctx context.Context, letters *DeadLetters, t PlanTarget) (why string, before bool, err error) {
	found, err := letters.List(ctx, DeadLetterFilter{EventID: t.EventID, Consumer: t.Consumer})
	if err != nil {
		return "", false, fmt.Errorf("look up %s: %w", t.Target(), err)
	}
	i := slices.IndexFunc(found, func(dl DeadLetter) bool { return dl.Target() == t.Target() })
	if i < 0 {
		return "gone since the plan", false, nil
	}
	dl := found[i]
	if slices.ContainsFunc(dl.Acts, func(act Act) bool { return act.Plan == a.plan.ID }) {
		return "", true, nil
	}
	switch now := standingInTheWay(dl); {
	case t.Force && dl.Status != StatusClosed:
		return "changed since the plan: now " + string(dl.Status), false, nil
	case !t.Force && now != "":
		return "changed since the plan: now " + now, false, nil
	case dl.Generation != t.Generation:
		return "changed since the plan: replayed meanwhile, and failed again", false, nil
	}
	return "", false, nil
}

// pace spaces out what is done, at a rate per second. What somebody was late for is made up
// for, up to paceDebt.
type pace struct {
	rate float64 // 0: any
	due  time.Time
}

const paceDebt = 250 * time.Millisecond

// wait returns when the next one is due.
func (p *pace) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil || p.rate == 0 {
		return err
	}
	now := time.Now()
	if p.due.IsZero() || p.due.Before(now.Add(-paceDebt)) {
		p.due = now
	}
	wait := p.due.Sub(now)
	p.due = p.due.Add(time.Duration(float64(time.Second) / p.rate))
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
