package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/store"
)

type dlqPlanCmd struct {
	output
	selecting
	signed

	Force bool   `again:"" help:"Also run again what is closed as resolved: its effect happens once more."`
	Limit uint   `placeholder:"N" help:"At most this many replays, of the oldest. Default and most: 200,000."`
	Out   string `placeholder:"FILE" help:"Write the plan there, for dlq apply. Default: only print what it would do."`
}

func (dlqPlanCmd) Help() string {
	return `Says which dead letters would be replayed, by type, consumer and failure, what waits behind them, and which would be left out and why. Nothing is changed. With --out the plan
is written down: which dead letters, in which order, and as what each was seen, so that "dlq apply" leaves alone what has changed since. It holds no payloads and no passwords.

The expression of --match knows payload, event (id, type, occurred_at, tenant_id, aggregate_type, aggregate_id, ordering_key …) and letter (consumer, stage, reason, message, status,
attempts, died_at).

Examples:

    ${program} dlq plan --reason RETRIES_EXHAUSTED --since 24h
    ${program} dlq plan --consumer ${consumer} --match '${match} && letter.attempts > 3' --out plan.json
    ${program} dlq plan ${store} sqlite:a.db ${store} sqlite:b.db --out plan.json`
}

// Run plans.
func (c *dlqPlanCmd) Run(ctx context.Context, p *Program) error {
	s, err := c.selection()
	switch {
	case err != nil:
		return err
	case c.Force && p.tool.finality != "":
		return usage("--force: %s", p.tool.finality)
	}
	if err := c.name(p, c.Out == ""); err != nil {
		return err
	}
	if _, err := os.Lstat(c.Out); c.Out != "" && err == nil { // also where nothing will be written: who goes on would apply it
		return planExists(c.Out)
	}
	s.Limit = int(min(c.Limit, 1<<31-1))
	var failed undecided
	if match := s.Matches; match != nil {
		s.Matches = func(dl eventing.DeadLetter) (bool, error) { // the planner keeps Undecided for itself
			ok, err := match(dl)
			if err != nil {
				failed.add(dl, err)
			}
			return ok, err
		}
	}
	return withDesks(ctx, p, func(desks []namedDesk) error {
		cfg := eventing.PlanConfig{Selection: s, Force: c.Force, By: cmp.Or(c.By, "nobody")}
		for _, d := range desks {
			cfg.Sources = append(cfg.Sources, eventing.PlanSource{Store: d.name, Letters: d.letters})
		}
		plan, report, err := eventing.MakePlan(ctx, cfg)
		if err != nil {
			return err
		}
		if report.Targets == 0 {
			c.Out = "" // a plan of nothing is of no use
		}
		if c.Out != "" {
			if err := writePlan(c.Out, plan); err != nil {
				return err
			}
		}
		if err := c.tell(p, plan, report, failed.n); err != nil {
			return err
		}
		return failed.err()
	})
}

func (c *dlqPlanCmd) tell(p *Program, plan eventing.Plan, report eventing.PlanReport, undecided int) error {
	if !c.JSON {
		return c.print(p, report)
	}
	return printJSON(p.Stdout, struct {
		eventing.PlanReport
		Undecided int    `json:"undecided"` // of the skipped, those that --match fails for
		Plan      string `json:"plan,omitempty"`
		Out       string `json:"out,omitempty"`
	}{report, undecided, map[bool]string{true: plan.ID}[c.Out != ""], c.Out})
}

func planExists(path string) error {
	return fmt.Errorf("%s is there already, and may be a plan that is half carried out: give another --out, or remove it", path)
}

// writePlan writes a new file: another plan may be half carried out.
func writePlan(path string, plan eventing.Plan) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return planExists(path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(plan.Write(f), f.Sync(), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("write the plan: %w", err), os.Remove(path))
	}
	return nil
}

func (c *dlqPlanCmd) print(p *Program, r eventing.PlanReport) error {
	w := p.Stdout
	counts := [][]string{{"TYPE", "CONSUMER", "REPLAYS", "OF THEM FORCED", "PARKED BEHIND"}}
	for _, n := range r.Counts {
		counts = append(counts, []string{n.EventType, n.Consumer, strconv.Itoa(n.Targets), strconv.Itoa(n.Forced), strconv.Itoa(n.Parked)})
	}
	left := [][]string{{"LEFT OUT", "WHY", "EXAMPLE"}}
	skipped := 0
	for _, s := range r.Skipped {
		skipped += s.Count
		left = append(left, []string{strconv.Itoa(s.Count), s.Reason, s.Example.String()})
	}
	for _, rows := range [][][]string{counts, groupRows(r.Groups), left} {
		if len(rows) == 1 {
			continue
		}
		if err := printTable(w, rows); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s would be replayed; %d parked behind would follow; %d left out.\n", plural(r.Targets, "dead letter"), r.Parked, skipped)
	if r.Truncated {
		b.WriteString("The limit has cut the plan off: there are more.\n")
	}
	switch {
	case r.Targets == 0:
		b.WriteString("There is nothing to plan, and nothing was written.\n")
	case c.Out == "":
		b.WriteString("Nothing was changed or written; --out FILE keeps the plan.\n")
	default:
		fmt.Fprintf(&b, "The plan is in %s. To carry it out, on the same databases:\n    %s\n", cleanLine(c.Out), p.command("dlq", "apply", c.Out))
	}
	if c.Force {
		b.WriteString("It is a plan by force: what consumers have processed has its effect once more; a consumer may refuse that.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// namedDesk is a desk with the name that its database has in plans.
type namedDesk struct {
	*desk
	name string
}

// withDesks works on all databases.
func withDesks(ctx context.Context, p *Program, work func([]namedDesk) error) (err error) {
	if len(p.stores) == 0 {
		_, err := p.store()
		return err
	}
	var desks []namedDesk
	defer func() {
		for _, d := range desks {
			err = errors.Join(err, d.store.Close())
		}
	}()
	for _, address := range p.stores {
		name, err := storeName(address)
		switch {
		case err != nil:
			return err
		case slices.ContainsFunc(desks, func(d namedDesk) bool { return d.name == name }):
			return usage("%s is given twice with %s", name, p.tool.storeFlag)
		}
		d, err := p.tool.desk(ctx, address)
		if err != nil {
			return err
		}
		desks = append(desks, namedDesk{d, name})
	}
	return work(desks)
}

// storeName names a database without secrets, and the same in whatever folder: its address
// without password, or the file.
func storeName(address string) (string, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	if scheme == "sqlite" {
		path, err := filepath.Abs(strings.TrimPrefix(rest, "//"))
		return "sqlite:" + path, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" && u.Path == "" {
		return "", usage("a plan needs the database's address as a URL, such as postgres://user@host/database")
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for key, values := range query {
		if store.Secret(key) || slices.ContainsFunc(values, store.Secret) {
			query.Del(key)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}
