package cli

import (
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/router/routing"
)

type routesCmd struct {
	Lint    routesLintCmd    `cmd:"" help:"Find what is wrong, or cannot be meant."`
	Explain routesExplainCmd `cmd:"" help:"Tell what becomes of an event, rule by rule."`
	Diff    routesDiffCmd    `cmd:"" help:"Tell what another file changes for recorded events."`
	Test    routesTestCmd    `cmd:"" help:"Check a file against events with expectations."`
	Schema  routesSchemaCmd  `cmd:"" help:"Print the JSON Schema of the files, for editors."`
}

func (routesCmd) Help() string {
	return `Examples:

    ${program} routes lint routes.yaml
    ${program} routes explain routes.yaml event.json --lookups lookups.json
    ${program} routes diff routes.yaml new.yaml --events events.ndjson
    ${program} routes test routes.yaml routes_test.yaml`
}

type routesLintCmd struct {
	output

	Files  []string `arg:"" name:"file" help:"Routing files."`
	Strict bool     `help:"Exit code 3 for information, too."`
}

func (routesLintCmd) Help() string {
	return `Errors keep a file from being compiled, or would drop events; warnings are legal and cannot be meant; information is worth knowing. A line for each says
FILE:LINE:COLUMN: LEVEL: MESSAGE (CODE).

Exit code: 0, or 3 if there are errors or warnings.

Examples:

    ${program} routes lint routes.yaml
    ${program} routes lint --strict routes/*.yaml
    ${program} routes lint routes.yaml --json | jq -r '.findings[] | select(.level == "error").message'`
}

// Run lints.
func (c *routesLintCmd) Run(p *Program) error {
	found := []routing.Finding{}
	for _, file := range c.Files {
		findings, err := routing.LintFile(file)
		if err != nil {
			return err
		}
		found = append(found, findings...)
	}
	if err := c.print(p, found); err != nil {
		return err
	}
	n := map[routing.Level]int{}
	for _, f := range found {
		n[f.Level]++
	}
	if n[routing.LevelError]+n[routing.LevelWarning] == 0 && (!c.Strict || len(found) == 0) {
		return nil
	}
	return foundError{fmt.Errorf("%s, %s, %d for information", plural(n[routing.LevelError], "error"), plural(n[routing.LevelWarning], "warning"), n[routing.LevelInfo])}
}

func (c *routesLintCmd) print(p *Program, found []routing.Finding) error {
	if c.JSON {
		return printJSON(p.Stdout, map[string][]routing.Finding{"findings": found})
	}
	for _, f := range found {
		if _, err := fmt.Fprintln(p.Stdout, cleanLine(f.String())); err != nil {
			return err
		}
	}
	return nil
}

type routesSchemaCmd struct{ output }

func (routesSchemaCmd) Help() string {
	return `Editors check and complete routing files with it, for example by a first line
"# yaml-language-server: $schema=routing.schema.json". It is JSON; --json changes nothing.

Examples:

    ${program} routes schema > routing.schema.json`
}

// Run prints the schema.
func (c *routesSchemaCmd) Run(p *Program) error {
	_, err := p.Stdout.Write(routing.JSONSchema())
	return err
}

// fixedLookups is a flag with what lookups find.
type fixedLookups struct {
	Lookups string `placeholder:"FILE" help:"What lookups find: JSON, by lookup and key, such as {\"citizen\": {\"c-1\": {…}, \"*\": {\"$$error\": \"down\"}}}; * is any other key."`
}

// load reads the file, if there is one. Each lookup in it is declared by one of the tables.
func (f *fixedLookups) load(tables ...*routing.Table) (routing.Lookups, error) {
	if f.Lookups == "" {
		return routing.Lookups{}, nil
	}
	l, err := routing.LoadLookups(f.Lookups)
	if err == nil {
		err = l.Check(tables...)
	}
	return l, err
}

// loadTables loads routing files. The error has the faults of all of them.
func loadTables(paths ...string) ([]*routing.Table, error) {
	var tables []*routing.Table
	var errs []error
	for _, path := range paths {
		table, err := routing.Load(path)
		tables, errs = append(tables, table), append(errs, err)
	}
	return tables, errors.Join(errs...)
}
