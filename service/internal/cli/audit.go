package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/worker"
)

type auditCmd struct {
	output
	storesSetting

	IDs    string        `name:"ids" placeholder:"FILE" help:"Only these events: a file with one courier's event id, or envelope's, a line; - for standard input."`
	Source string        `help:"With --ids: they are this courier's. Default: any courier's, or envelopes'."`
	Since  moment        `placeholder:"WHEN" help:"Only what was sent since then: 2h or 7d, meaning ago, a date, or RFC 3339."`
	Until  moment        `placeholder:"WHEN" help:"Only what was sent before then."`
	Grace  time.Duration `default:"1m" help:"How long an event may be on its way."`
}

func (auditCmd) Help() string {
	return `Accounts for every event in the outbox: pending, in flight, processed, retrying, parked, dead, discarded; else it is missing: the broker has lost it. An id of a list
that nothing is known of is unknown: it was never accepted, or is older than what is kept. Sent rows are kept for a day. It may run at any time, beside a running gateway.

With --json, each line is an object: first one for each event that is missing or unknown, and at the end {"summary": …} with the counts. "gateway outbox requeue --from-audit"
sends again what such a file says is missing.

Exit code: 0 if all is accounted for, 3 if something is missing or unknown.

Examples:

    gateway audit
    gateway audit --json > audit.ndjson || gateway outbox requeue --from-audit audit.ndjson
    gateway audit --ids sent-by-the-courier.txt --json | jq -r 'select(.standing == "unknown").event_id'`
}

// Run audits.
func (c *auditCmd) Run(ctx context.Context, p *Program) error {
	switch {
	case c.Source != "" && c.IDs == "":
		return usage("--source goes with --ids")
	case c.Grace <= 0:
		return usage("--grace must be positive")
	case !c.Until.IsZero() && !c.Until.After(c.Since.Time):
		return usage("--until must lie after --since")
	}
	return withDesk(ctx, p, func(d *desk) error {
		cfg := eventing.AuditConfig{
			Outbox: d.store.Events, Stores: []eventing.AuditStore{d.store.Events}, Routes: toWorker{},
			From: c.Since.Time, To: c.Until.Time, Grace: c.Grace,
		}
		var listed error
		if c.IDs != "" {
			in, err := p.open(c.IDs)
			if err != nil {
				return err
			}
			defer in.Close()
			cfg.EventIDs = d.envelopesOf(ctx, lines(in, &listed), c.Source, &listed)
		}
		done := func() {}
		if p.Interactive {
			cfg.Progress, done = progress(p.Stderr)
		}
		list := findings{ctx: ctx, desk: d, limit: maxShown}
		if c.JSON {
			list.limit, list.out = 0, p.Stdout
		}
		report, err := eventing.Audit(ctx, cfg, list.add)
		done()
		if err = errors.Join(err, listed); err == nil {
			err = list.flush()
		}
		if err != nil {
			return err
		}
		if err := c.print(p, report, list.shown); err != nil {
			return err
		}
		if report.Clean() {
			return nil
		}
		return foundError{fmt.Errorf("%s missing, %d unknown", are(report.Missing, "event"), report.Unknown)}
	})
}

func are(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " is"
	}
	return plural(n, thing) + " are"
}

func (c *auditCmd) print(p *Program, r eventing.AuditReport, shown []finding) error {
	w := p.Stdout
	if c.JSON {
		return json.NewEncoder(w).Encode(map[string]eventing.AuditReport{"summary": r})
	}
	rows := [][]string{{"CONSUMER", "STANDING", "EVENTS"}}
	for _, consumer := range slices.Sorted(maps.Keys(r.Consumers)) {
		for _, s := range slices.Sorted(maps.Keys(r.Consumers[consumer])) {
			rows = append(rows, []string{consumer, string(s), strconv.Itoa(r.Consumers[consumer][s])})
		}
	}
	if err := printTable(w, rows); err != nil {
		return err
	}
	if len(shown) > 0 {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		rows = [][]string{{"EVENT", "SOURCE", "CONSUMER", "STANDING", "SENT", "ENVELOPE"}}
		for _, f := range shown {
			rows = append(rows, []string{f.CourierEventID, f.Source, f.Consumer, string(f.Standing), since(f.SentAt), f.EventID})
		}
		if err := printTable(w, rows); err != nil {
			return err
		}
	}
	var b strings.Builder
	if more := r.Missing + r.Unknown - len(shown); more > 0 {
		fmt.Fprintf(&b, "and %d more; --json lists all.\n", more)
	}
	fmt.Fprintf(&b, "\noldest sent: %s; what is older and was removed cannot be audited.\n", since(r.OldestSent))
	if r.Missing > 0 {
		fmt.Fprintf(&b, "To send again what is missing:\n    %s > audit.ndjson\n    %s\n", p.command(c.arguments(p)...), p.command("outbox", "requeue", "--from-audit", "audit.ndjson"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// arguments are those of the same audit, as JSON.
func (c *auditCmd) arguments(p *Program) []string {
	args := []string{"audit", "--json"}
	for _, flag := range [][2]string{{"--ids", c.IDs}, {"--source", c.Source}, {"--since", c.Since.text}, {"--until", c.Until.text}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	if p.given["grace"] {
		args = append(args, "--grace", c.Grace.String())
	}
	return args
}

// toWorker is the gateway's routing table: the worker gets every event.
type toWorker struct{}

func (toWorker) Route(string) (routes []eventing.Route, routed bool) {
	return []eventing.Route{{Consumer: worker.Consumer, Topic: worker.Queue}}, true
}

func (toWorker) Consumer(name string) (route eventing.Route, known bool) {
	return eventing.Route{Consumer: worker.Consumer, Topic: worker.Queue}, name == worker.Consumer
}

// finding is one of the audit, with what the courier calls its event, if the ledger knows
// it: then it was accepted.
type finding struct {
	eventing.AuditFinding

	CourierEventID string `json:"courier_event_id,omitempty"`
	Source         string `json:"source,omitempty"`
	ShipmentID     string `json:"shipment_id,omitempty"`
}

// maxShown is how many findings people see.
const maxShown = 20

// findings prints those of an audit, or keeps the first of them.
type findings struct {
	ctx   context.Context //nolint:containedctx // of the one audit
	desk  *desk
	out   io.Writer // nil: keep
	limit int       // of those kept
	shown []finding
	batch []finding
}

func (l *findings) add(f eventing.AuditFinding) error {
	if l.out == nil && len(l.batch) == l.limit {
		return nil
	}
	n := l.desk.given.name(f.EventID)
	if l.batch = append(l.batch, finding{f, n.EventID, n.Source, n.ShipmentID}); l.out != nil && len(l.batch) == eventing.AuditBatch {
		return l.flush()
	}
	return nil
}

// flush finds out the names of a batch.
func (l *findings) flush() error {
	ids := make([]string, len(l.batch))
	for i := range l.batch {
		ids[i] = l.batch[i].EventID
	}
	names, err := l.desk.names.Names(l.ctx, ids)
	if err != nil {
		return err
	}
	for _, f := range l.batch {
		if n, ok := names[f.EventID]; ok {
			f.CourierEventID, f.Source, f.ShipmentID = n.EventID, n.Source, n.ShipmentID
		}
		if l.out == nil {
			l.shown = append(l.shown, f)
		} else if err := json.NewEncoder(l.out).Encode(f); err != nil {
			return err
		}
	}
	l.batch = l.batch[:0]
	return nil
}

// open opens a file, or, for -, standard input.
func (p *Program) open(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(p.Stdin), nil
	}
	return os.Open(path)
}

// maxLine is longer than any event id.
const maxLine = 4096

// lines returns the ids of a list. What is wrong with it is in err afterwards.
func lines(r io.Reader, err *error) iter.Seq[string] {
	return func(yield func(string) bool) {
		none := true
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxLine)
		for n := 1; s.Scan(); n++ {
			id := strings.TrimSpace(s.Text())
			if !utf8.ValidString(id) || strings.ContainsRune(id, 0) {
				*err = fmt.Errorf("the list of ids: line %d is not text", n)
				return
			}
			if id == "" {
				continue
			}
			none = false
			if !yield(id) {
				return
			}
		}
		switch {
		case s.Err() != nil:
			*err = fmt.Errorf("the list of ids, one a line: %w", s.Err())
		case none:
			*err = errors.New("the list of ids is empty")
		}
	}
}

// envelopesOf returns the envelopes of the events that couriers, or one source, call so, and
// those that the ids are themselves; an id that neither holds for is taken for an envelope's.
func (d *desk) envelopesOf(ctx context.Context, ids iter.Seq[string], source string, err *error) iter.Seq[string] {
	d.given.keep = 2 * eventing.AuditBatch // a list may have no end, and an audit has one batch in hand
	return func(yield func(string) bool) {
		for batch := range batches(ids, eventing.AuditBatch) {
			known, lookup := d.names.Envelopes(ctx, batch, source)
			var own map[string]ledger.Name
			if lookup == nil && source == "" {
				own, lookup = d.names.Names(ctx, batch)
			}
			if lookup != nil {
				*err = lookup
				return
			}
			for _, id := range batch {
				var envelopes []string
				for _, c := range known[id] {
					envelopes = append(envelopes, c.EnvelopeID)
					d.given.add(c)
				}
				if _, is := own[id]; is || len(envelopes) == 0 {
					envelopes = append(envelopes, id)
				}
				for _, envelope := range envelopes {
					if !yield(envelope) {
						return
					}
				}
			}
		}
	}
}

func batches(ids iter.Seq[string], size int) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		var batch []string
		for id := range ids {
			if batch = append(batch, id); len(batch) == size {
				if !yield(batch) {
					return
				}
				batch = batch[:0]
			}
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}

// progress tells on one line of a terminal how far an audit is, once it takes long.
func progress(w io.Writer) (tell func(eventing.AuditReport), done func()) {
	last, told := time.Now(), false
	tell = func(r eventing.AuditReport) {
		if time.Since(last) >= time.Second {
			last, told = time.Now(), true
			_, _ = fmt.Fprintf(w, "\r%s looked at, %d missing", plural(r.Rows, "row"), r.Missing)
		}
	}
	return tell, func() {
		if told {
			_, _ = fmt.Fprintln(w)
		}
	}
}
