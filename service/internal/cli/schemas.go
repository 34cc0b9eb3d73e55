package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/service/internal/schemas"
)

type schemasCmd struct {
	output

	Type    string `arg:"" optional:"" name:"type" help:"Print the schema of this type. Default: list all."`
	Version int    `name:"schema-version" placeholder:"N" help:"Of this version. Default: the latest."`
}

func (schemasCmd) Help() string {
	return `They are JSON Schemas of draft 2020-12: of what couriers send (courier-event), of the messages of the queues, and of the events that the gateway adds. The API has them at /schemas.

Examples:

    gateway schemas
    gateway schemas courier-event > courier-event.schema.json`
}

// Run prints one, or a list of all.
func (c *schemasCmd) Run(p *Program) error {
	all := schemas.All()
	if c.Type == "" {
		if c.Version != 0 {
			return usage("--schema-version goes with a type")
		}
		return c.list(p, all)
	}
	var found *schemas.Schema
	var names []string
	for i, s := range all { // the versions in order
		if names = append(names, fmt.Sprintf("%s version %d", s.Type, s.Version)); s.Type == c.Type && (c.Version == 0 || c.Version == s.Version) {
			found = &all[i]
		}
	}
	if found == nil {
		return fmt.Errorf("there is no such schema; there are: %s", strings.Join(names, ", "))
	}
	_, err := p.Stdout.Write(found.Text)
	return err
}

func (c *schemasCmd) list(p *Program, all []schemas.Schema) error {
	if c.JSON {
		return printJSON(p.Stdout, struct {
			Schemas []schemas.Schema `json:"schemas"`
		}{all})
	}
	rows := [][]string{{"TYPE", "VERSION", "ID", "TITLE"}}
	for _, s := range all {
		rows = append(rows, []string{s.Type, strconv.Itoa(s.Version), s.ID, s.Title})
	}
	return printTable(p.Stdout, rows)
}
