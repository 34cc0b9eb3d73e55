package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

type dlqCmd struct {
	List   dlqListCmd   `cmd:"" help:"List dead letters, the oldest first."`
	Show   dlqShowCmd   `cmd:"" help:"Show all that is known of one."`
	Review dlqReviewCmd `cmd:"" help:"Mark one as looked at."`
	Replay dlqReplayCmd `cmd:"" help:"Send some to their consumer again."`
	Close  dlqCloseCmd  `cmd:"" help:"Give some up for good."`
}

func (dlqCmd) Help() string {
	return `Dead letters are events that a consumer could not process. These commands work on the database, also beside a running gateway.

Examples:

    gateway dlq list
    gateway dlq show evt_141
    gateway dlq replay evt_141 --note "courier has fixed it"
    gateway dlq close evt_141 --reason "test event" --yes`
}

type dlqListCmd struct {
	output
	storeSetting

	Status   string `placeholder:"STATUS" help:"Only those that are pending, reviewed, replayed or closed."`
	Consumer string `placeholder:"NAME" help:"Only those of this consumer."`
	All      bool   `help:"Closed ones too. Default: open ones only."`
	Limit    uint   `default:"100" help:"At most this many, 10,000 at most."`
}

func (dlqListCmd) Help() string {
	return `Examples:

    gateway dlq list
    gateway dlq list --status reviewed --consumer shipment-projection
    gateway dlq list --json | jq -r '.dead_letters[].reason_code' | sort | uniq -c`
}

// maxLetters is how many dead letters one command lists or replays.
const maxLetters = 10_000

var statuses = []string{
	string(eventing.StatusPending), string(eventing.StatusReviewed), string(eventing.StatusReplayed), string(eventing.StatusClosed),
}

// Run lists.
func (c *dlqListCmd) Run(ctx context.Context, p *Program) error {
	if c.Limit == 0 || c.Limit > maxLetters {
		return usage("--limit must lie between 1 and %d", maxLetters)
	}
	if c.Status != "" && !slices.Contains(statuses, c.Status) {
		return usage("--status must be one of %s, not %q", strings.Join(statuses, ", "), c.Status)
	}
	status := eventing.ReviewStatus(c.Status)
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		letters, err := d.list(ctx, eventing.DeadLetterFilter{
			Consumer: c.Consumer, Status: status, OpenOnly: !c.All && status != eventing.StatusClosed,
			Limit: int(c.Limit),
		})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(p.Stdout, map[string][]letter{"dead_letters": append([]letter{}, letters...)})
		}
		if len(letters) == 0 {
			none := "There is no such dead letter."
			if !c.All && c.Status == "" {
				none = "No open dead letters (--all shows closed ones)."
			}
			_, err := fmt.Fprintln(p.Stdout, none)
			return err
		}
		rows := [][]string{{"EVENT", "SOURCE", "CONSUMER", "REASON", "ATTEMPTS", "STATUS", "PARKED", "AGE", "ENVELOPE"}}
		for _, l := range letters {
			rows = append(rows, []string{
				l.CourierEventID, l.Source, l.Consumer, string(l.Reason), strconv.Itoa(l.AttemptCount), l.state(),
				strconv.Itoa(l.ParkedBehind), age(time.Since(l.CreatedAt)), l.EventID,
			})
		}
		if err := printTable(p.Stdout, rows); err != nil {
			return err
		}
		if len(letters) == int(c.Limit) {
			_, err = fmt.Fprintf(p.Stderr, "These are the oldest %d; there may be more: raise --limit.\n", c.Limit)
		}
		return err
	})
}

type dlqShowCmd struct {
	output
	storeSetting
	which

	ID string `arg:"" help:"The courier's event id, or the envelope's."`
}

func (dlqShowCmd) Help() string {
	return `Shows why the event died, each attempt at it, what has been done about it since, and its payload.

Examples:

    gateway dlq show evt_141
    gateway dlq show evt_123 --source northpost
    gateway dlq show evt_141 --json | jq .payload`
}

// Run shows one dead letter.
func (c *dlqShowCmd) Run(ctx context.Context, p *Program) error {
	return withDesk(ctx, c.StoreURL, func(d *desk) error {
		l, err := d.one(ctx, c.ID, c.which, false)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(p.Stdout, struct {
				letter
				Payload any `json:"payload"`
			}{l, jsonOrText(l.Payload)})
		}
		return c.print(p.Stdout, l)
	})
}

func jsonOrText(b []byte) any {
	if json.Valid(b) {
		return json.RawMessage(b)
	}
	return string(b)
}

func (c *dlqShowCmd) print(w io.Writer, l letter) error {
	rows := [][]string{
		{"event", l.CourierEventID}, {"source", l.Source}, {"shipment", l.ShipmentID}, {"envelope", l.EventID}, {"type", l.EventType},
		{"consumer", l.Consumer}, {"stage", string(l.Stage)}, {"reason", string(l.Reason)}, {"message", l.Message},
		{"status", l.state()}, {"attempts", strconv.Itoa(l.AttemptCount)}, {"ordering key", l.OrderingKey},
		{"parked behind", strconv.Itoa(l.ParkedBehind)}, {"died first", since(l.CreatedAt)}, {"last change", since(l.UpdatedAt)},
		{"kept until", l.ExpiresAt.UTC().Format(time.RFC3339)},
	}
	sections := []struct {
		title string
		rows  [][]string
	}{{"", rows}, {"Attempts", nil}, {"Acts", nil}}
	for _, a := range l.History {
		sections[1].rows = append(sections[1].rows, []string{"  " + strconv.Itoa(a.Attempt), a.At.UTC().Format(time.RFC3339), string(a.ErrorCode), a.ErrorMessage})
	}
	for _, a := range l.Acts {
		sections[2].rows = append(sections[2].rows, []string{"  " + a.Act, a.At.UTC().Format(time.RFC3339), a.By, a.Note})
	}
	for _, s := range sections {
		if len(s.rows) == 0 {
			continue
		}
		if s.title != "" {
			if _, err := fmt.Fprintf(w, "\n%s\n", s.title); err != nil {
				return err
			}
		}
		if err := printTable(w, s.rows); err != nil {
			return err
		}
	}
	var payload strings.Builder
	if err := printJSON(&payload, jsonOrText(l.Payload)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nPayload\n%s", clean(payload.String()))
	return err
}
