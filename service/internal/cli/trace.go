package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/life"
)

type traceCmd struct {
	output
	storesSetting

	ID      string `arg:"" name:"event-id" help:"The courier's event id, the envelope's, or a trace id."`
	Source  string `placeholder:"NAME" help:"Only the event of this courier: two may use one id."`
	Payload bool   `help:"Print what the courier has sent, too, while something has it."`
}

func (traceCmd) Help() string {
	return `Tells what the database knows of an event, in the order of time: intake, outbox, each attempt that failed, dead letter and what was done about it, inbox and shipment;
then how the event stands, in the words of "gateway audit", and what to do next. It needs no running gateway. Several events of one id are told one after the other.

Outbox rows that were sent are kept for a day, and attempts that failed before one succeeded are not kept beyond their number and last error. A trace id, or the envelope of an event that was processed that long ago, is looked for in all of the ledger, which may take long.
SQL databases are seen at one moment. MongoDB is read part by part: of an event that moves meanwhile, some may be told as before and some as after; ask again.

Examples:

    gateway trace evt_141
    gateway trace evt_123 --source northpost --payload
    gateway trace evt_141 --json | jq -r '.events[].standing'`
}

// Run tells.
func (c *traceCmd) Run(ctx context.Context, p *Program) error {
	return withDesk(ctx, p, func(d *desk) error {
		lives := d.store.Lives
		events, err := lives.Find(ctx, c.ID, c.Source, c.Payload)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return c.unknown(ctx, lives)
		}
		if c.JSON {
			return printJSON(p.Stdout, struct {
				Events []life.Event `json:"events"`
			}{events})
		}
		for i, e := range events {
			if i > 0 {
				if _, err := fmt.Fprintln(p.Stdout); err != nil {
					return err
				}
			}
			if err := c.print(p, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// unknown says that there is no such event, and what to do next.
func (c *traceCmd) unknown(ctx context.Context, lives backend.Lives) error {
	if c.Source != "" {
		others, err := lives.Find(ctx, c.ID, "", false)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			var sources []string
			for _, e := range others {
				sources = append(sources, orDash(e.Source))
			}
			return fmt.Errorf("%q is no event of --source %s; it is one of: %s", c.ID, c.Source, strings.Join(sources, ", "))
		}
	}
	return fmt.Errorf("nothing is known of %q: it was never accepted by a gateway on this database, or has expired (PROCESSED_TTL_DAYS); ask the courier for its answer, which has a trace id if it was a 202", c.ID)
}

func (c *traceCmd) print(p *Program, e life.Event) error {
	name := e.CourierEventID
	if name != "" {
		name += " of " + e.Source
	}
	rows := [][]string{{"event", name}, {"type", e.EventType}, {"shipment", e.ShipmentID}, {"envelope", e.EnvelopeID}, {"trace", e.TraceID}}
	if !e.OccurredAt.IsZero() {
		rows = append(rows, []string{"occurred", e.OccurredAt.UTC().Format(time.RFC3339)})
	}
	if err := printTable(p.Stdout, rows); err != nil {
		return err
	}
	rows = nil
	for _, s := range e.Steps {
		rows = append(rows, []string{"  " + s.At.UTC().Format("2006-01-02T15:04:05.000Z"), s.What, told(s)})
	}
	if _, err := fmt.Fprintln(p.Stdout); err != nil {
		return err
	}
	if err := printTable(p.Stdout, rows); err != nil {
		return err
	}
	return c.printNow(p, e)
}

// printNow prints how things are.
func (c *traceCmd) printNow(p *Program, e life.Event) error {
	standing := string(e.Standing)
	if e.Attempts > 1 || e.Attempts == 1 && e.LastErrorCode != "" {
		standing += ", " + plural(e.Attempts, "attempt")
		if e.LastErrorCode != "" {
			standing += ", the last error: " + e.LastErrorCode + ": " + e.LastError
		}
	}
	rows := [][]string{{"event", standing}}
	if s := e.Shipment; s != nil {
		state := fmt.Sprintf("%s, of order %s; the last event is %s, of %s", orDash(s.State), orDash(s.OrderID), s.LastEventID, s.LastEventAt.UTC().Format(time.RFC3339))
		rows = append(rows, []string{"shipment", state})
	}
	rows = append(rows, []string{"next", next(p, e)})
	if _, err := fmt.Fprintln(p.Stdout, "\nNow"); err != nil {
		return err
	}
	for i := range rows {
		rows[i][0] = "  " + rows[i][0]
	}
	if err := printTable(p.Stdout, rows); err != nil || !c.Payload {
		return err
	}
	text := "nothing has it any longer\n"
	if e.Payload != nil {
		var b strings.Builder
		if err := printJSON(&b, jsonOrText(e.Payload)); err != nil {
			return err
		}
		text = clean(b.String())
	}
	_, err := io.WriteString(p.Stdout, "\nPayload\n"+text)
	return err
}

// told says what a step was about.
func told(s life.Step) string {
	var parts []string
	say := func(yes bool, text string) {
		if yes {
			parts = append(parts, text)
		}
	}
	say(s.BodyHash != "", "body "+s.BodyHash+"…")
	say(s.Row != 0, "outbox row "+strconv.FormatInt(s.Row, 10))
	say(s.Replay > 0, "replay "+strconv.Itoa(s.Replay))
	switch {
	case s.What == life.Attempt:
		say(true, strconv.Itoa(s.Attempt)+" at "+s.Consumer)
	case s.What == life.Died && s.Consumer == "":
		say(true, "before it came to a consumer")
	case s.What == life.Died:
		say(true, "at "+s.Consumer)
	case s.What == life.Applied:
		say(true, "to the shipment")
	case s.What == life.Late:
		say(true, "not applied: the shipment has a newer event")
	case s.Row != 0 && s.Consumer != "":
		say(true, "for "+s.Consumer+" alone")
	case s.Consumer != "":
		say(true, "at "+s.Consumer)
	}
	say(s.By != "", "by "+s.By)
	say(!s.DueAt.IsZero(), "for "+s.DueAt.UTC().Format(time.RFC3339))
	say(s.Plan != "", "plan "+s.Plan)
	text := s.Code
	if s.Message != "" && (s.What != life.Died || s.Consumer == "") { // its last attempt says the same
		if text != "" {
			text += ": "
		}
		text += s.Message
	}
	say(text != "", text)
	return strings.Join(parts, ", ")
}

// next says what to do about an event, or that there is nothing to do.
func next(p *Program, e life.Event) string {
	due := ""
	if !e.DueAt.IsZero() {
		due = " at " + e.DueAt.UTC().Format(time.RFC3339)
	}
	switch e.Standing {
	case eventing.StandingPending:
		return "a dispatcher sends it" + due + "; if it does not, see: " + p.command("outbox", "stats")
	case eventing.StandingInFlight:
		return "it is on its way to the worker"
	case eventing.StandingRetrying:
		return "it is tried again by itself" + due
	case eventing.StandingParked:
		return "it follows once the dead letter of its ordering key is replayed or closed: " + p.command("dlq", "list")
	case eventing.StandingDead:
		if due != "" {
			return "it is replayed by itself" + due
		}
		return p.command("dlq", "show", e.EnvelopeID)
	case eventing.StandingMissing:
		return "the worker is behind, or the broker has lost it; it does no harm to send it again: " + p.command("outbox", "requeue", "--event-id", e.EnvelopeID)
	case eventing.StandingProcessed, eventing.StandingDiscarded, eventing.StandingUntracked, eventing.StandingUnknown:
	}
	return "nothing"
}
