package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/waybill-go/waybill/router/routing"
)

type routesTestCmd struct {
	storeless
	output

	File     string   `arg:"" help:"The routing file."`
	Tests    []string `arg:"" help:"Files of tests."`
	Coverage bool     `help:"Exit code 3 also if no test reaches some cell, rule or modifier."`
}

func (routesTestCmd) Help() string {
	return `A file of tests is YAML:

    lookups:                                  # optional: of all tests that do not say otherwise
      customer: {level: gold}                 # whatever the key
    tests:
      - name: a large order is announced
        event: {type: order_placed, payload: {customer_id: c-1, total: 120}}
        lookups:
          stock: {$error: out of reach}       # fails; {$keys: {k-1: …}} is one that depends on the key
        expect:                               # every consumer that gets the event, and no other
          mail: [{do: announce, with: {channels: [email]}}]
          audit: []                           # gets it, and does nothing
          billing: {$error: retry}            # the attempt fails; or the reason code of the dead letter
        lane: critical                        # optional; or normal

An event has the fields of an envelope; an id, a time and a payload may be missing, and event_type may be called type. After the failures come the cells, rules and modifiers that no test has reached. Events of an older schema version fail a test, since Go functions bring
them to the latest: test these in Go, with routing.Router.Test.

Exit code: 0 if all tests pass, else 3.

Examples:

    ${program} routes test routes.yaml routes_test.yaml
    ${program} routes test --coverage routes.yaml tests/*.yaml --json | jq .coverage`
}

// Run tests.
func (c *routesTestCmd) Run(ctx context.Context, p *Program) error {
	tables, err := loadTables(ctx, c.File)
	errs := []error{err}
	var files []*routing.TestFile
	for _, path := range c.Tests {
		f, err := read(ctx, path, routing.LoadTests)
		files, errs = append(files, f), append(errs, err)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	r := tables[0].Test(ctx, files...)
	if c.JSON {
		err = printJSON(p.Stdout, r)
	} else {
		_, err = io.WriteString(p.Stdout, c.text(&r))
	}
	switch failed := r.Tests - r.Passed; {
	case err != nil:
		return err
	case failed > 0:
		return foundError{fmt.Errorf("%s failed", plural(failed, "test"))}
	case c.Coverage && len(r.Coverage.Unreached) > 0:
		return foundError{fmt.Errorf("no test reaches %d of the cells, rules and modifiers", len(r.Coverage.Unreached))}
	}
	return nil
}

func (c *routesTestCmd) text(r *routing.TestReport) string {
	var b strings.Builder
	last := ""
	for _, f := range r.Failures {
		if test := fmt.Sprintf("%s: %s", f.File, f.Test); test != last {
			fmt.Fprintf(&b, "FAIL %s\n", cleanLine(test))
			last = test
		}
		fmt.Fprintf(&b, "  line %d: %s\n", f.Line, cleanLine(f.Problem))
		for _, side := range [][2]string{{"expected", f.Expected}, {"got", f.Got}} {
			if side[1] != "" {
				fmt.Fprintf(&b, "    %-8s  %s\n", side[0], cleanLine(side[1]))
			}
		}
	}
	if len(r.Failures) > 0 {
		b.WriteString("\n")
	}
	for _, u := range r.Coverage.Unreached {
		fmt.Fprintf(&b, "%s:%d: no test reaches the %s %s\n", cleanLine(r.File), u.Line, u.Kind, cleanLine(u.Name))
	}
	fmt.Fprintf(&b, "%s, %d passed. Reached: %s, %s, %s.\n", plural(r.Tests, "test"), r.Passed,
		reached(r.Coverage.Cells, "cell"), reached(r.Coverage.Rules, "rule"), reached(r.Coverage.Modifiers, "modifier"))
	return b.String()
}

func reached(c routing.Covered, thing string) string {
	return fmt.Sprintf("%d of %s", c.Reached, plural(c.Total, thing))
}
