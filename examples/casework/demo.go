package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// options are what the command line says.
type options struct {
	store   string
	cases   int
	seed    uint64
	timeout time.Duration
}

// demonstrate plays the story and tells it. It returns nil only if, in the end, all is as it should be.
func demonstrate(ctx context.Context, o options, out io.Writer, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %v; give it more time with -timeout", o.timeout))
	defer cancel()
	err := play(ctx, o, out, logger)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func play(ctx context.Context, o options, out io.Writer, logger *slog.Logger) error {
	db, err := openDatabase(ctx, o.store)
	if err != nil {
		return err
	}
	first, err := firstDayIn(ctx, db)
	if err != nil {
		return errors.Join(err, db.close())
	}
	c, faults := newClock(first), new(switches)
	s, err := newSystem(db, config{now: c.now, switches: faults, poll: demoPoll, leaseTTL: demoLease, logger: logger})
	if err == nil {
		p := newPlan(o.seed, o.cases, first)
		p.install(faults)
		d := demo{&player{s, p, c, first}, report{out, s}}
		err = s.during(ctx, d.run)
	}
	return errors.Join(err, db.close())
}

// The engines look often for what is due, since the clock does not wait; and each time that it is set on, they have to take
// their leases anew, which takes a part of the time that one lasts.
const (
	demoPoll  = 20 * time.Millisecond
	demoLease = time.Second
)

// demo is the story.
type demo struct {
	*player
	tell report
}

func (d demo) run(ctx context.Context) error {
	began := time.Now()
	d.tell.say("%d cases, seed %d, routing table %s. Database: %s", len(d.lives), d.seed, d.table.Version(), d.db.name)
	d.tell.step("What is going to happen")
	if err := d.tell.planned(d.plan); err != nil {
		return err
	}
	d.tell.step("Day by day. The clock does not wait for retries: it is set on to them")
	if err := d.play(ctx, d.tell.day); err != nil {
		return err
	}
	d.tell.step(fmt.Sprintf("%.0f s later: what each consumer did", time.Since(began).Seconds()))
	if err := errors.Join(d.tell.consumers(ctx), d.tell.letters(ctx)); err != nil {
		return err
	}
	shown := d.shownLife()
	d.tell.step(fmt.Sprintf("The life of case %s (%s), from the audit log", shown.reference, shown.story))
	if err := d.tell.life(ctx, shown); err != nil {
		return err
	}
	if err := d.operate(ctx); err != nil {
		return err
	}
	d.tell.step("Where the cases stand")
	if err := d.tell.cases(ctx); err != nil {
		return err
	}
	found, err := d.audit(ctx, d.clock.now())
	if err = errors.Join(err, found.err()); err != nil {
		return err
	}
	d.tell.say("\nOK: each case made its transitions once and in order, every event is in the log, and nothing is under way.")
	return nil
}

// shownLife is one with much to tell: of a case that was held and went on, if there is one.
func (d demo) shownLife() *life {
	i := slices.IndexFunc(d.lives, func(l *life) bool { return l.story == "held, cleared and granted" })
	return d.lives[max(i, 0)]
}

// operate has the operator release the frozen cases, and waits until they have caught up.
func (d demo) operate(ctx context.Context) error {
	o := newOperator(d.system, d.clock)
	frozen, err := o.frozen(ctx)
	if err != nil {
		return err
	}
	d.tell.step(fmt.Sprintf("The operator looks after the %d frozen cases", len(frozen)))
	if err := d.tell.frozen(frozen); err != nil {
		return err
	}
	did := map[string][]eventing.DeadLetter{}
	for _, letter := range frozen {
		what, err := o.release(ctx, letter)
		if err != nil {
			return err
		}
		did[what] = append(did[what], letter)
	}
	for _, what := range []string{replayed, discarded} {
		if letters := did[what]; len(letters) > 0 {
			d.tell.say("\n  %s: %d, such as\n\n    waybill %s", what, len(letters), fmt.Sprintf(commands[what], letters[0].EventID))
		}
	}
	for _, consumer := range []string{notificationEngine, fraudEngine} {
		letters, err := o.accept(ctx, consumer)
		if err != nil {
			return err
		}
		if len(letters) > 0 {
			d.tell.say("\n  %d dead letters of %s closed: %s.", len(letters), consumer, insteadOf[consumer])
		}
	}
	return d.settle(ctx)
}
