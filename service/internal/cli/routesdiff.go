package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/router/routing"
)

type routesDiffCmd struct {
	output
	fixedLookups

	Old    string   `arg:"" help:"The routing file as it is."`
	New    string   `arg:"" help:"The routing file as it is to be."`
	Events string   `placeholder:"FILE" help:"The events: a file with an envelope in JSON on each line, in which an id and a time may be missing; - for standard input. Default: the event log of the database."`
	Type   []string `sep:"none" placeholder:"TYPE" help:"Only events of this type; may be repeated."`
	Since  moment   `placeholder:"WHEN" help:"Only what happened since then: 24h or 7d, meaning ago, a date, or RFC 3339."`
	Until  moment   `placeholder:"WHEN" help:"Only what happened before then."`
}

func (routesDiffCmd) Help() string {
	return `Runs recorded events through both files, without any effect, and counts the deliveries that differ: gained, lost, or changed (another action, other parameters, another failure, another
lane), with examples. Any number of events will do; they are read one by one. Those in a file each count, also if their ids are the same. One without an id is called line-N there, and one
without a time has the time of the command; with --since or --until it needs one.

` + lookupsHelp + `

A delivery that depends on a lookup that is not given, or on an upcaster, is counted as not compared, unless the files treat it alike whatever the event.

Exit code: 0 if nothing differs; 3 if something does, could not be compared, or there are no events; 1 if there are lines that are no events: they are named, and the others are compared.

Examples:

    ${program} routes diff routes.yaml new.yaml --events events.ndjson
    jq -c . event.json | ${program} routes diff routes.yaml new.yaml --events -
    ${program} routes diff routes.yaml new.yaml ${store} sqlite:app.db --since 30d --lookups lookups.json
    git show main:routes.yaml > old.yaml && ${program} routes diff old.yaml routes.yaml --events events.ndjson --json | jq '.changes[] | {event_type, consumer, kind, count}'`
}

// Run compares.
func (c *routesDiffCmd) Run(ctx context.Context, p *Program) error {
	switch {
	case !c.Until.IsZero() && !c.Until.After(c.Since.Time):
		return usage("--until must lie after --since")
	case c.Events != "" && p.given[strings.TrimPrefix(p.tool.storeFlag, "--")]:
		return usage("--events or %s: the events come from one of them", p.tool.storeFlag)
	case c.Events == "" && len(p.stores) == 0:
		return usage("say where the events are: --events FILE, or %s URL for a database with an event log", p.tool.storeFlag)
	}
	tables, err := loadTables(ctx, c.Old, c.New)
	if err != nil {
		return err
	}
	l, err := c.load(ctx, tables...)
	if err != nil {
		return err
	}
	r, err := c.recorded(ctx, p)
	if err != nil {
		return err
	}
	differ := routing.NewDiffer(tables[0], tables[1], l)
	tell, done := comparing(p)
	for e := range r.events {
		if c.wants(e) {
			differ.Event(ctx, e)
			tell()
		}
		if ctx.Err() != nil {
			break
		}
	}
	done()
	if ctx.Err() != nil { // which may be what r.err is about, too
		return errors.Join(context.Cause(ctx), r.close())
	}
	if err := errors.Join(r.err, r.close()); err != nil {
		return err
	}
	report := differ.Report()
	if err := c.print(p, &report, r.broken.n); err != nil {
		return err
	}
	if err := r.broken.in(c.Events); err != nil {
		return err
	}
	switch {
	case report.Events == 0:
		return foundError{errors.New("no events were compared: there are none, or none that were asked for")}
	case report.Same():
		return nil
	}
	return foundError{errors.New(found(&report))}
}

func (c *routesDiffCmd) recorded(ctx context.Context, p *Program) (*recorded, error) {
	if c.Events != "" {
		at := time.Now()
		if !c.Since.IsZero() || !c.Until.IsZero() {
			at = time.Time{} // nobody knows whether an event without a time is asked for
		}
		return p.eventsIn(ctx, c.Events, at)
	}
	return p.eventsOf(ctx, eventlog.Filter{Types: c.Type, Since: c.Since.Time, Until: c.Until.Time})
}

// wants reports whether an event is among those that were asked for.
func (c *routesDiffCmd) wants(e eventing.Envelope) bool {
	return (len(c.Type) == 0 || slices.Contains(c.Type, e.Type)) && !e.OccurredAt.Before(c.Since.Time) && (c.Until.IsZero() || e.OccurredAt.Before(c.Until.Time))
}

func found(r *routing.DiffReport) string {
	n := 0
	for _, u := range r.Uncompared {
		n += u.Count
	}
	var parts []string
	if r.Differing == 1 {
		parts = append(parts, "1 event differs")
	} else if r.Differing > 1 {
		parts = append(parts, plural(r.Differing, "event")+" differ")
	}
	if n == 1 {
		parts = append(parts, "1 delivery was not compared")
	} else if n > 1 {
		parts = append(parts, strconv.Itoa(n)+" deliveries were not compared")
	}
	return strings.Join(parts, ", ")
}

func (c *routesDiffCmd) print(p *Program, r *routing.DiffReport, invalidLines int) error {
	if c.JSON {
		return printJSON(p.Stdout, struct {
			*routing.DiffReport

			InvalidLines int `json:"invalid_lines"` // of the file of events
		}{r, invalidLines})
	}
	rows := [][]string{{"EVENTS", "TYPE", "CONSUMER", "CHANGE"}}
	for _, change := range r.Changes {
		rows = append(rows, []string{strconv.Itoa(change.Count), change.EventType, change.Consumer, string(change.Kind)})
	}
	missing := [][]string{{"NOT COMPARED", "TYPE", "CONSUMER", "WHY", "EXAMPLE"}}
	for _, u := range r.Uncompared {
		missing = append(missing, []string{strconv.Itoa(u.Count), u.EventType, u.Consumer, u.Why, u.Example})
	}
	for _, table := range [][][]string{rows, missing} {
		if len(table) == 1 {
			continue
		}
		if err := printTable(p.Stdout, table); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(p.Stdout); err != nil {
			return err
		}
	}
	var b strings.Builder
	if slices.ContainsFunc(r.Uncompared, func(u routing.Uncompared) bool { return u.Lookup != "" }) {
		where := "--lookups FILE"
		if c.Lookups != "" {
			where = "add it to " + cleanLine(c.Lookups) + ", by the key or as \"*\""
		}
		fmt.Fprintf(&b, "To compare what depends on lookups, say what they find: %s.\n\n", where)
	}
	for _, change := range r.Changes {
		b.WriteString(example(change.Examples[0]))
	}
	if r.Unroutable > 0 {
		such := ":"
		if len(r.UnroutableTypes) < r.Unroutable {
			such = ", such as"
		}
		fmt.Fprintf(&b, "%s of a type that neither file declares%s %s.\n", are(r.Unroutable, "event"), such, cleanLine(strings.Join(r.UnroutableTypes, ", ")))
	}
	fmt.Fprintf(&b, "%s compared, %d with a difference.\n", plural(r.Events, "event"), r.Differing)
	_, err := io.WriteString(p.Stdout, b.String())
	return err
}

// example is a change for people.
func example(change routing.Change) string {
	var b strings.Builder
	what := change.Consumer
	switch change.Kind {
	case routing.Routable:
		what = "its type was not declared, which made it a dead letter at dispatch"
	case routing.Unroutable:
		what = "its type is not declared any more: a dead letter at dispatch"
	}
	fmt.Fprintf(&b, "%s %s: %s\n", cleanLine(change.EventType), cleanLine(change.EventID), cleanLine(what))
	for _, side := range []struct {
		sign string
		is   *routing.Delivery
	}{{"-", change.Old}, {"+", change.New}} {
		for _, line := range sideLines(side.is) {
			fmt.Fprintf(&b, "  %s %s\n", side.sign, cleanLine(line))
		}
	}
	return b.String() + "\n"
}

// sideLines is what becomes of an event at a consumer by one of the files.
func sideLines(d *routing.Delivery) []string {
	if d == nil {
		return nil
	}
	var lines []string
	switch {
	case d.Error != "" && d.Reason == "":
		lines = append(lines, "fails, and is retried: "+d.Error)
	case d.Error != "":
		lines = append(lines, fmt.Sprintf("dead letter %s: %s", d.Reason, d.Error))
	case d.Actions == nil:
		lines = append(lines, "what it does is not known: it depends on an upcaster")
	case len(d.Actions) == 0:
		lines = append(lines, "does nothing")
	}
	for _, a := range d.Actions {
		lines = append(lines, a.String())
	}
	if d.Lane != "" {
		lines = append(lines, "in the "+string(d.Lane)+" lane")
	}
	return lines
}

// comparing tells how far it is: on one line of a terminal, else on a line now and then.
func comparing(p *Program) (tell, done func()) {
	every, from, to := 10*time.Second, "", "\n"
	if p.Interactive {
		every, from, to = 200*time.Millisecond, "\r", "\x1b[K"
	}
	last, n, told := time.Now(), 0, false
	tell = func() {
		if n++; n%1000 != 0 || time.Since(last) < every {
			return
		}
		last, told = time.Now(), true
		_, _ = fmt.Fprintf(p.Stderr, "%s%s compared%s", from, plural(n, "event"), to)
	}
	return tell, func() {
		if told && p.Interactive {
			_, _ = fmt.Fprintln(p.Stderr)
		}
	}
}
