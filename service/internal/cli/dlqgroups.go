package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type dlqGroupsCmd struct {
	output
	selecting

	All bool `help:"Closed ones too. Default: open ones only."`
}

func (dlqGroupsCmd) Help() string {
	return `Counts dead letters that look like one failure, the most frequent first: same consumer, same reason, and errors that differ in ids, numbers, times and addresses only.
Below each is the command that plans its replay.

Examples:

    ${program} dlq groups
    ${program} dlq groups --since 24h --consumer ${consumer}
    ${program} dlq groups --json | jq -r '.groups[] | "\(.count) \(.reason_code)"'`
}

// Run counts.
func (c *dlqGroupsCmd) Run(ctx context.Context, p *Program) error {
	s, err := c.selection()
	if err != nil {
		return err
	}
	var failed undecided
	s.OpenOnly, s.Undecided = !c.All && s.Status != eventing.StatusClosed, failed.add
	return withDesk(ctx, p, func(d *desk) error {
		groups, err := d.letters.Groups(ctx, s)
		if err != nil {
			return err
		}
		if err := c.print(ctx, p, d, groups, failed.n); err != nil {
			return err
		}
		return failed.err()
	})
}

func (c *dlqGroupsCmd) print(ctx context.Context, p *Program, d *desk, groups []eventing.FailureGroup, undecided int) error {
	switch {
	case c.JSON:
		return printJSON(p.Stdout, struct {
			Groups    []eventing.FailureGroup `json:"groups"`
			Undecided int                     `json:"undecided"` // those that --match fails for
		}{append([]eventing.FailureGroup{}, groups...), undecided})
	case len(groups) == 0:
		return d.none(ctx, p, c.any(), c.All)
	}
	for _, g := range groups {
		rows := [][]string{
			{plural(g.Count, "dead letter"), orDash(g.Consumer), string(g.Reason), "last " + age(time.Since(g.LastAt)) + " ago"},
		}
		if err := printTable(p.Stdout, rows); err != nil {
			return err
		}
		example := p.command("dlq", "show", g.Example.EventID, "--consumer", g.Example.Consumer)
		if _, err := fmt.Fprintf(p.Stdout, "    error:   %s\n    example: %s\n", cleanLine(orDash(g.Error)), example); err != nil {
			return err
		}
		if g.Error == eventing.OtherFailures {
			continue
		}
		if _, err := fmt.Fprintf(p.Stdout, "    replay:  %s\n", p.command(append([]string{"dlq", "plan"}, c.planning(g)...)...)); err != nil {
			return err
		}
	}
	return nil
}

// planning are the arguments that plan the replay of a group, of what was selected.
func (c *dlqGroupsCmd) planning(g eventing.FailureGroup) []string {
	s := c.selecting
	s.Reason, s.Error = string(g.Reason), g.Error
	if g.Consumer != "" {
		s.Consumer = []string{g.Consumer}
	}
	return s.arguments()
}

// groupRows lists the groups of a plan.
func groupRows(groups []eventing.FailureGroup) [][]string {
	rows := [][]string{{"FAILURES", "CONSUMER", "REASON", "ERROR", "EXAMPLE"}}
	for _, g := range groups[:min(len(groups), maxShown)] {
		rows = append(rows, []string{strconv.Itoa(g.Count), g.Consumer, string(g.Reason), g.Error, g.Example.EventID})
	}
	return rows
}
