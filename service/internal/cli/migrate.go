package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply the steps that are missing."`
	Status migrateStatusCmd `cmd:"" help:"List the steps, and when each was applied."`
	SQL    migrateSQLCmd    `cmd:"" name:"sql" help:"Print the statements, for those who run them by other means."`
}

func (migrateCmd) Help() string {
	return `A program may bring the schema up to date as it starts; these commands do it before.

Examples:

    ${program} migrate status
    STORE_URL=postgres://waybill@localhost/waybill ${program} migrate up`
}

type migrateUpCmd struct {
	output
}

func (migrateUpCmd) Help() string {
	return `Several processes may do this at once.

Examples:

    ${program} migrate up
    ${program} migrate up ${store} postgres://waybill@localhost/waybill`
}

// Run brings the schema up to date.
func (c *migrateUpCmd) Run(ctx context.Context, p *Program) (err error) {
	s, err := p.openSchema(ctx, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	applied, err := s.Up(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.Stdout, map[string][]string{"applied": append([]string{}, applied...)})
	}
	for _, step := range applied {
		if _, err := fmt.Fprintln(p.Stdout, "applied", step); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(p.Stdout, "The schema is up to date.")
	return err
}

type migrateStatusCmd struct {
	output
}

func (migrateStatusCmd) Help() string {
	return `Examples:

    ${program} migrate status
    ${program} migrate status --json | jq '.migrations[] | select(.applied | not)'`
}

// Run lists the steps.
func (c *migrateStatusCmd) Run(ctx context.Context, p *Program) (err error) {
	s, err := p.openSchema(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	steps, err := s.Status(ctx)
	if err != nil {
		return err
	}
	type step struct {
		Name      string     `json:"name"`
		Applied   bool       `json:"applied"`
		AppliedAt *time.Time `json:"applied_at"`
	}
	all, rows := make([]step, len(steps)), [][]string{{"STEP", "APPLIED"}}
	for i, s := range steps {
		all[i] = step{s.Name, s.Applied, known(s.AppliedAt)}
		applied := "no: run " + p.tool.name + " migrate up"
		switch {
		case !s.AppliedAt.IsZero():
			applied = since(s.AppliedAt)
		case s.Applied:
			applied = "yes"
		case s.Optional:
			applied += ", which cannot be done on FerretDB, nor need be"
		}
		rows = append(rows, []string{s.Name, applied})
	}
	if c.JSON {
		return printJSON(p.Stdout, map[string][]step{"migrations": all})
	}
	return printTable(p.Stdout, rows)
}

type migrateSQLCmd struct {
	output
}

func (migrateSQLCmd) Help() string {
	return `Prints all steps in the dialect of the store's address, without connecting to it.

Examples:

    ${program} migrate sql ${store} postgres: > schema.sql`
}

// Run prints the statements.
func (c *migrateSQLCmd) Run(p *Program) error {
	address, err := p.store()
	if err != nil {
		return err
	}
	text, err := p.tool.schemaSQL(address)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(p.Stdout, map[string]string{"sql": text})
	}
	_, err = io.WriteString(p.Stdout, text)
	return err
}
