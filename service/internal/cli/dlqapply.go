package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type dlqApplyCmd struct {
	output
	signed

	Plan string  `arg:"" help:"The file that dlq plan --out has written; - for standard input."`
	Rate float64 `default:"50" placeholder:"N" help:"At most this many replays per second; 0: as many as the database takes. Default: 50."`
	Note string  `placeholder:"TEXT" help:"Why; recorded with each replay."`
	Yes  bool    `help:"Do not ask."`
}

func (dlqApplyCmd) Help() string {
	return `Replays the dead letters of a plan in its order, so that those of one ordering key follow each other. What has changed since the plan is left alone, and the output says why.

It may be stopped, or die: give the same command again, and it goes on. What the plan has replayed is known by its id, which is recorded with each replay, with who and when
("dlq show" prints it); nothing is replayed twice.

Exit code: 3 if something was left alone.

Examples:

    ${program} dlq apply plan.json --note "fixed in 1.4.2"
    ${program} dlq apply plan.json --rate 200 --yes --json`
}

const (
	minRate = 1.0 / 3600
	maxRate = 1_000_000
)

// Run carries a plan out.
func (c *dlqApplyCmd) Run(ctx context.Context, p *Program) error {
	if !(c.Rate == 0 || c.Rate >= minRate && c.Rate <= maxRate) { // also when it is not a number
		return usage("--rate must lie between one an hour (%.4f) and %d, or be 0 for as many as the database takes", minRate, maxRate)
	}
	if err := c.name(p, false); err != nil {
		return err
	}
	in, err := p.open(c.Plan)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s writes one, if there is something to replay", err, p.command("dlq", "plan", "--out", c.Plan))
	}
	if err != nil {
		return err
	}
	plan, err := eventing.ReadPlan(in)
	if err = errors.Join(err, in.Close()); err != nil {
		return fmt.Errorf("%s: %w", c.Plan, err)
	}
	if plan.Force && p.tool.finality != "" {
		return usage("this is a plan by force: %s", p.tool.finality)
	}
	return withDesks(ctx, p, func(desks []namedDesk) error {
		stores, err := c.stores(p, plan, desks)
		if err != nil {
			return err
		}
		if !c.Yes {
			if err := p.confirm("This replays:", c.summary(plan)); err != nil {
				return err
			}
		}
		tell, end := applying(p)
		done, err := plan.Apply(ctx, eventing.ApplyConfig{Stores: stores, By: c.By, Note: c.Note, Rate: c.Rate, Progress: tell})
		end()
		if plan.Force && done.Replayed > 0 {
			_, _ = fmt.Fprintln(p.Stderr, mayRefuse)
		}
		if printed := c.print(p.Stdout, done); printed != nil && err == nil {
			err = printed
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("interrupted with %d left; to go on: %s", done.Left, c.again(p))
		case err != nil:
			return fmt.Errorf("%w; %d are left; to go on: %s", err, done.Left, c.again(p))
		case done.Skipped > 0:
			return foundError{fmt.Errorf("%s left alone", was(done.Skipped, "dead letter"))}
		}
		return nil
	})
}

// again is the command that goes on where this one has stopped.
func (c *dlqApplyCmd) again(p *Program) string {
	args := []string{"dlq", "apply", c.Plan}
	for _, flag := range [][2]string{{"rate", strconv.FormatFloat(c.Rate, 'g', -1, 64)}, {"note", c.Note}, {"by", c.By}} {
		if p.given[flag[0]] {
			args = append(args, "--"+flag[0], flag[1])
		}
	}
	return p.command(args...)
}

func was(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " was"
	}
	return plural(n, thing) + " were"
}

// stores finds the plan's stores among those that are given.
func (c *dlqApplyCmd) stores(p *Program, plan *eventing.Plan, desks []namedDesk) (map[string]*eventing.DeadLetters, error) {
	stores := map[string]*eventing.DeadLetters{}
	var planned []string
	for _, s := range plan.Stores {
		planned = append(planned, s.Store)
	}
	for _, d := range desks {
		if !slices.Contains(planned, d.name) {
			return nil, usage("the plan is not for %s, but for %s: give each of these with %s", d.name, strings.Join(planned, ", "), p.tool.storeFlag)
		}
		stores[d.name] = d.letters
	}
	for _, name := range planned {
		if stores[name] == nil {
			return nil, usage("the plan is also for %s: give it with %s, too", name, p.tool.storeFlag)
		}
	}
	return stores, nil
}

// summary says what a plan is about, before it is carried out.
func (c *dlqApplyCmd) summary(plan *eventing.Plan) []string {
	lines := []string{"plan " + plan.ID + " of " + plan.MadeBy + ", made " + since(plan.MadeAt)}
	for _, s := range plan.Stores {
		consumers, forced := map[string]int{}, 0
		for _, t := range s.Targets {
			consumers[t.Consumer]++
			if t.Force {
				forced++
			}
		}
		for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
			lines = append(lines, plural(consumers[consumer], "dead letter")+" of "+orDash(consumer)+" in "+s.Store)
		}
		if forced > 0 {
			lines = append(lines, strconv.Itoa(forced)+" of them by force: what was processed has its effect once more")
		}
	}
	if c.Rate > 0 {
		takes := time.Duration(float64(plan.Targets()) / c.Rate * float64(time.Second))
		lines = append(lines, fmt.Sprintf("at most %g per second: at least %s", c.Rate, takes.Round(time.Second)))
	}
	return lines
}

func (c *dlqApplyCmd) print(w io.Writer, done eventing.Applied) error {
	if c.JSON {
		return printJSON(w, done)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %s replayed", done.Replayed, plural(done.Targets, "dead letter"))
	if done.Before > 0 {
		fmt.Fprintf(&b, ", %d before", done.Before)
	}
	fmt.Fprintf(&b, "; %d left alone; %d left.\n", done.Skipped, done.Left)
	if _, err := io.WriteString(w, b.String()); err != nil || len(done.Skips) == 0 {
		return err
	}
	rows := [][]string{{"LEFT ALONE", "WHY", "EXAMPLE"}}
	for _, s := range done.Skips {
		rows = append(rows, []string{strconv.Itoa(s.Count), s.Reason, s.Example.String()})
	}
	return printTable(w, rows)
}

// applying tells how far it is: on one line of a terminal, else on a line now and then.
func applying(p *Program) (tell func(eventing.Applied), end func()) {
	every, from, to := 10*time.Second, "", "\n"
	if p.Interactive {
		every, from, to = 200*time.Millisecond, "\r", "\x1b[K"
	}
	last, told := time.Now(), false
	tell = func(a eventing.Applied) {
		if time.Since(last) < every {
			return
		}
		last, told = time.Now(), true
		_, _ = fmt.Fprintf(p.Stderr, "%s%d of %d replayed, %d before, %d left alone%s", from, a.Replayed, a.Targets, a.Before, a.Skipped, to)
	}
	return tell, func() {
		if told && p.Interactive {
			_, _ = fmt.Fprintln(p.Stderr)
		}
	}
}
