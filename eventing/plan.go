package eventing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Plan names dead letters to replay, in order, and what each of them was like when the plan was
// made. [MakePlan] makes it, [Plan.Apply] carries it out; in between it may be kept as
// a file (see [ReadPlan]), read, and thought about.
type Plan struct {
	Version   int         `json:"version"` // 1
	ID        string      `json:"id"`
	MadeAt    time.Time   `json:"made_at"`
	MadeBy    string      `json:"made_by"`
	Selection Selection   `json:"selection"`
	Force     bool        `json:"force,omitempty"`
	Stores    []StorePlan `json:"stores"`
}

// StorePlan is the part of a plan that is about one store.
type StorePlan struct {
	// Store is a name by which whoever applies the plan finds the store again. It must not
	// tell a secret: it is written to the file.
	Store string `json:"store"`
	// Targets are in the order of their first death, so also those of one ordering key.
	Targets []PlanTarget `json:"targets"`
}

// PlanTarget is a dead letter that is to be replayed.
type PlanTarget struct {
	EventID     string `json:"event_id"`
	Consumer    string `json:"consumer_name"`
	EventType   string `json:"event_type"`
	OrderingKey string `json:"ordering_key,omitempty"`
	// Generation is the one that it has: with another it is not replayed.
	Generation int `json:"generation"`
	// Force: it is closed as resolved, and is run again all the same.
	Force bool `json:"force,omitempty"`
}

// Target returns the dead letter's name.
func (t PlanTarget) Target() Target { return Target{EventID: t.EventID, Consumer: t.Consumer} }

// The bounds of a plan.
const (
	planVersion    = 1
	maxPlanTargets = 200_000
	maxPlanBytes   = 64 << 20
	maxPlanStores  = 100
)

// PlanSource is a store that a plan is made for.
type PlanSource struct {
	Store   string // see [StorePlan]
	Letters *DeadLetters
}

// PlanConfig says what to plan.
type PlanConfig struct {
	Sources []PlanSource // at least one, at most 100, their names distinct
	// Selection of the dead letters. Its Limit bounds the targets of all stores. Default and
	// upper bound: 200,000.
	Selection Selection
	// Force includes what is closed as resolved: the consumer has processed it, and is to do
	// so once more, under a new generation.
	Force bool
	// By is who makes the plan. Needed.
	By string
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// MakePlan reads the dead letters of a selection and plans the replay of those that can be
// replayed; nothing is written. The report says what the plan would do, and why it leaves out
// what it leaves out. A plan may have no targets.
func MakePlan(ctx context.Context, cfg PlanConfig) (Plan, PlanReport, error) {
	limit := cfg.Selection.Limit
	names := map[string]bool{}
	for _, source := range cfg.Sources {
		names[source.Store] = true
	}
	switch {
	case len(cfg.Sources) == 0 || len(cfg.Sources) > maxPlanStores || len(names) < len(cfg.Sources):
		return Plan{}, PlanReport{}, fmt.Errorf("plan a replay: it needs between 1 and %d stores with different names", maxPlanStores)
	case strings.TrimSpace(cfg.By) == "" || len(cfg.By) > maxNameBytes:
		return Plan{}, PlanReport{}, fmt.Errorf("plan a replay: say who makes it, in at most %d bytes", maxNameBytes)
	case limit < 0 || limit > maxPlanTargets:
		return Plan{}, PlanReport{}, fmt.Errorf("plan a replay: the limit is %d; it may be %d at most", limit, maxPlanTargets)
	case limit == 0:
		limit = maxPlanTargets
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := planner{cfg: cfg, left: limit, tally: newTally()}
	p.plan = Plan{Version: planVersion, ID: NewID(), MadeAt: cfg.Now().UTC(), MadeBy: cfg.By, Selection: cfg.Selection, Force: cfg.Force}
	for _, source := range cfg.Sources {
		if err := p.read(ctx, source); err != nil {
			return Plan{}, PlanReport{}, fmt.Errorf("plan a replay of %s: %w", source.Store, err)
		}
	}
	return p.plan, p.tally.report(), nil
}

// planner makes one plan.
type planner struct {
	cfg   PlanConfig
	plan  Plan
	left  int // targets
	tally *tally
}

func (p *planner) read(ctx context.Context, source PlanSource) error {
	part := StorePlan{Store: source.Store, Targets: []PlanTarget{}}
	selection := p.cfg.Selection
	selection.Limit = 0 // what is left out does not count
	selection.Undecided = func(dl DeadLetter, err error) {
		p.tally.skip("the match fails: "+err.Error(), dl.Target())
	}
	err := source.Letters.Select(ctx, selection, func(dl DeadLetter) error {
		why, force := p.leaveOut(dl)
		switch {
		case why != "":
			p.tally.skip(why, dl.Target())
			return nil
		case p.left == 0:
			p.tally.truncated = true
			return errEnough
		}
		p.left--
		part.Targets = append(part.Targets, PlanTarget{
			EventID: dl.EventID, Consumer: dl.Consumer, EventType: dl.EventType, OrderingKey: dl.orderKey(), Generation: dl.Generation, Force: force,
		})
		p.tally.count(dl, force)
		return nil
	})
	p.plan.Stores = append(p.plan.Stores, part)
	return err
}

// leaveOut says why a dead letter is not replayed; nothing, if it is, by force or not.
func (p *planner) leaveOut(dl DeadLetter) (why string, force bool) {
	switch {
	case dl.Status == StatusClosed && dl.Resolution == Resolved && p.cfg.Force && dl.Consumer != "":
		return "", true
	case dl.Stage == StageDecode && dl.Consumer == "":
		return "undecodable: no consumer can be told from it", false
	}
	return standingInTheWay(dl), false
}

// standingInTheWay says why a dead letter cannot be replayed as it is; nothing, if it can.
func standingInTheWay(dl DeadLetter) string {
	switch {
	case dl.Status == StatusReplayed:
		return "replayed already: on its way"
	case dl.Status == StatusClosed && dl.Resolution == Discarded && dl.expired():
		return "closed: expired"
	case dl.Status == StatusClosed:
		return "closed: " + string(dl.Resolution)
	case !dl.ScheduledAt.IsZero():
		return "scheduled: replays by itself"
	}
	return ""
}

// expired reports whether nobody has discarded it but the pruner.
func (d *DeadLetter) expired() bool {
	n := len(d.Acts)
	return n > 0 && d.Acts[n-1].Note == string(ReasonExpired)
}

// Targets counts the targets in all stores.
func (p *Plan) Targets() (n int) {
	for _, s := range p.Stores {
		n += len(s.Targets)
	}
	return n
}

// check checks a plan that was read.
func (p *Plan) check() error {
	switch {
	case p.Version != planVersion:
		return fmt.Errorf("its version is %d, and this program knows %d only", p.Version, planVersion)
	case p.ID == "" || len(p.ID) > maxNameBytes:
		return errors.New("it has no id, or one that is too long")
	case len(p.Stores) > maxPlanStores || p.Targets() > maxPlanTargets:
		return fmt.Errorf("it has %d stores and %d targets; %d and %d are the most", len(p.Stores), p.Targets(), maxPlanStores, maxPlanTargets)
	}
	stores := map[string]bool{}
	for _, s := range p.Stores {
		if s.Store == "" || stores[s.Store] {
			return fmt.Errorf("store %q is there twice, or has no name", s.Store)
		}
		stores[s.Store] = true
		targets := make(map[Target]bool, len(s.Targets))
		for i, t := range s.Targets {
			switch {
			case t.EventID == "" || len(t.EventID) > maxNameBytes || len(t.Consumer) > maxNameBytes || t.Generation < 0:
				return fmt.Errorf("target %d of store %s is none", i+1, s.Store)
			case targets[t.Target()]:
				return fmt.Errorf("store %s: %s is there twice", s.Store, t.Target())
			case t.Force && !p.Force:
				return fmt.Errorf("store %s: %s is to be forced, and the plan is not", s.Store, t.Target())
			}
			targets[t.Target()] = true
		}
	}
	return nil
}
