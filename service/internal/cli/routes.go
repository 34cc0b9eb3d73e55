package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/alecthomas/kong"

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

// storeless is part of the commands that need no database: their help does not have its flag.
type storeless struct{}

// BeforeReset hides the flag, before the help is printed.
func (storeless) BeforeReset(command *kong.Context, p *Program) error {
	for node := command.Selected(); node != nil; node = node.Parent {
		for _, flag := range node.Flags {
			flag.Hidden = flag.Hidden || "--"+flag.Name == p.tool.storeFlag
		}
	}
	return nil
}

type routesLintCmd struct {
	storeless
	output

	Files  []string `arg:"" name:"file" help:"Routing files."`
	Strict bool     `help:"Exit code 3 for information, too."`
}

func (routesLintCmd) Help() string {
	return `Errors keep a file from being compiled, or would drop events; warnings are legal and cannot be meant; information is worth knowing. A line for each says
FILE:LINE:COLUMN: LEVEL: MESSAGE (CODE).

Exit code: 0, also if there is information; 3 if there are errors or warnings; 1 if a file could not be read.

Examples:

    ${program} routes lint routes.yaml
    ${program} routes lint --strict routes/*.yaml
    ${program} routes lint routes.yaml --json | jq -r '.findings[] | select(.level == "error").message'`
}

// Run lints.
func (c *routesLintCmd) Run(ctx context.Context, p *Program) error {
	found := []routing.Finding{}
	var unread []error
	for _, file := range c.Files {
		findings, err := read(ctx, file, routing.LintFile)
		found, unread = append(found, findings...), append(unread, err)
		if ctx.Err() != nil {
			break
		}
	}
	if err := c.print(p, found); err != nil {
		return err
	}
	n := map[routing.Level]int{}
	for _, f := range found {
		n[f.Level]++
	}
	var summary error
	if n[routing.LevelError]+n[routing.LevelWarning] > 0 || c.Strict && len(found) > 0 {
		summary = fmt.Errorf("%s, %s, %d for information", plural(n[routing.LevelError], "error"), plural(n[routing.LevelWarning], "warning"), n[routing.LevelInfo])
	}
	if err := errors.Join(unread...); err != nil {
		return errors.Join(err, summary)
	}
	if summary == nil {
		return nil
	}
	return foundError{summary}
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

type routesSchemaCmd struct {
	storeless
	output
}

func (routesSchemaCmd) Help() string {
	return `Editors with a YAML language server check and complete routing files with it, if this is their first line:

    # yaml-language-server: $schema=routing.schema.json

The schema is JSON; --json changes nothing.

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
	Lookups string `placeholder:"FILE" help:"What lookups find: a file of JSON, see above."`
}

// lookupsHelp is about the file.
const lookupsHelp = `The file of --lookups says what each lookup finds, by the key that it is asked for. "*" is any other key, and $error makes the lookup fail:

    {"customer": {"c-1": {"level": "gold"}, "*": {"level": "none"}}, "stock": {"*": {"$error": "out of reach"}}}`

// load reads the file, if there is one. Each lookup in it is declared by one of the tables.
func (f *fixedLookups) load(ctx context.Context, tables ...*routing.Table) (routing.Lookups, error) {
	if f.Lookups == "" {
		return routing.Lookups{}, nil
	}
	l, err := within(ctx, func() (routing.Lookups, error) { return routing.LoadLookups(f.Lookups) })
	if err == nil {
		err = l.Check(tables...)
	}
	return l, err
}

// loadTables loads routing files. The error has the faults of all of them.
func loadTables(ctx context.Context, paths ...string) ([]*routing.Table, error) {
	var tables []*routing.Table
	var errs []error
	for _, path := range paths {
		table, err := read(ctx, path, routing.Load)
		tables, errs = append(tables, table), append(errs, err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return tables, errors.Join(errs...)
}

// read reads a routing file, or one of tests. A pipe is refused before it is opened, which would wait for whoever is to write to it.
func read[T any](ctx context.Context, path string, from func(path string) (T, error)) (read T, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return read, fmt.Errorf("%s is not a file, but %s", path, kind(info.Mode()))
	} else if path == "-" && errors.Is(err, fs.ErrNotExist) {
		return read, usage("there is no file called -: only events are read from standard input")
	}
	return within(ctx, func() (T, error) { return from(path) })
}

func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "a directory"
	case fs.ModeNamedPipe:
		return "a pipe: save what comes out of it as a file first"
	}
	return "a device"
}
