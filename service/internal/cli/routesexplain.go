package cli

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

type routesExplainCmd struct {
	output
	fixedLookups

	File    string `arg:"" help:"The routing file."`
	Event   string `arg:"" optional:"" help:"A file with the event's envelope in JSON; - for standard input. An id and a time may be missing. Default: the event log of the database."`
	EventID string `placeholder:"ID" help:"The event with this id, of a file with an event on each line, or of the event log."`
}

func (routesExplainCmd) Help() string {
	return `Says of each consumer whether it gets the event, what it does about it, and why: the row of the matrix, each rule that was tried, with what its condition found, the
modifiers, and the lookups. It is the same code as runs in production. Nothing is changed.

` + lookupsHelp + `

A lookup that is not there fails, and what follows from that is explained. An event of an older schema version is brought to the latest by Go functions, which this program does not have: then
it says who gets the event. In Go, routing.Router.Explain has both.

Exit code: 0 whatever becomes of the event, also if nobody gets it, or a consumer fails.

Examples:

    ${program} routes explain routes.yaml event.json
    ${program} routes explain routes.yaml event.json --lookups lookups.json --json | jq '.consumers[] | select(.error)'
    echo '{"event_type": "order_placed", "payload": {"total": 120}}' | ${program} routes explain routes.yaml -
    ${program} routes explain routes.yaml ${store} sqlite:app.db --event-id 0198a000-…`
}

// Run explains.
func (c *routesExplainCmd) Run(ctx context.Context, p *Program) error {
	if c.Event == "" && c.EventID == "" {
		return usage("say which event: EVENT.json, - for standard input, or --event-id ID of the event log")
	}
	tables, err := loadTables(ctx, c.File)
	if err != nil {
		return err
	}
	l, err := c.load(ctx, tables...)
	if err != nil {
		return err
	}
	e, err := c.event(ctx, p)
	if err != nil {
		return err
	}
	x := tables[0].Explain(ctx, e, l)
	if c.JSON {
		return printJSON(p.Stdout, x)
	}
	return x.Write(p.Stdout)
}

func (c *routesExplainCmd) event(ctx context.Context, p *Program) (eventing.Envelope, error) {
	if c.Event != "" {
		return p.eventIn(ctx, c.Event, c.EventID)
	}
	r, err := p.eventsOf(ctx, eventlog.Filter{})
	if err != nil {
		return eventing.Envelope{}, err
	}
	return r.find(c.EventID, "the event log")
}
