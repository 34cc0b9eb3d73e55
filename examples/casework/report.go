package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// report tells what has happened.
type report struct {
	out io.Writer
	*system
}

func (r report) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", args...)
}

func (r report) step(title string) { r.say("\n== %s", title) }

// rows prints a table; the first row is its head. Cells are separated by tabs.
func (r report) rows(rows []string) error {
	w := tabwriter.NewWriter(r.out, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(w)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, "  "+row)
	}
	return w.Flush()
}

// query prints the result of a query under a head.
func (r report) query(ctx context.Context, head, query string, args ...any) error {
	rows := []string{head}
	cells := make([]sql.NullString, strings.Count(head, "\t")+1)
	into := make([]any, len(cells))
	for i := range cells {
		into[i] = &cells[i]
	}
	if err := each(ctx, r.db.read, query, args, func(scan func(...any) error) error {
		if err := scan(into...); err != nil {
			return err
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = c.String
		}
		rows = append(rows, strings.Join(texts, "\t"))
		return nil
	}); err != nil {
		return err
	}
	return r.rows(rows)
}

// planned tells what is going to be played.
func (r report) planned(p *plan) error {
	rows := []string{"cases\tstory"}
	for _, s := range stories {
		n := 0
		for _, l := range p.lives {
			if l.story == s.name {
				n++
			}
		}
		if n > 0 {
			rows = append(rows, fmt.Sprintf("%d\t%s", n, s.name))
		}
	}
	if err := r.rows(rows); err != nil {
		return err
	}
	rows = []string{"faults\tin\tfor"}
	for _, where := range slices.Sorted(maps.Keys(p.faults)) {
		byTimes := map[int]int{}
		for _, times := range p.faults[where] {
			byTimes[times]++
		}
		for _, times := range slices.Sorted(maps.Keys(byTimes)) {
			long := fmt.Sprintf("the first %d calls each", times)
			if times == forGood {
				long = "good"
			}
			rows = append(rows, fmt.Sprintf("%d\t%s\t%s", byTimes[times], where, long))
		}
	}
	return r.rows(rows)
}

// day tells of a day that was played.
func (r report) day(morning time.Time, d *day) {
	r.tally.mu.Lock()
	defer r.tally.mu.Unlock()
	failed, dead := 0, 0
	for _, c := range r.tally.consumers {
		failed, dead = failed+c.failed, dead+c.dead
	}
	r.say("  %s   %4d acts, %3d payments out, %3d answers about payments   so far %4d failed attempts, %2d dead letters",
		morning.Format("Mon 02 Jan 2006"), len(d.acts), len(d.payments), len(d.answers), failed, dead)
}

// consumers tells what each consumer did.
func (r report) consumers(ctx context.Context) error {
	frozen, err := count(ctx, r.db.read, `SELECT count(*) FROM dead_letter_consumers WHERE consumer_name = $1 AND status <> 'closed'`, workflowEngine)
	if err != nil {
		return err
	}
	parked, err := count(ctx, r.db.read, `SELECT count(*) FROM event_deliveries WHERE state = 'parked'`)
	if err != nil {
		return err
	}
	t := r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	rows := []string{"consumer\tprocessed\tfailed attempts\tfallback or default\tdead letters\tparked"}
	for _, name := range r.table.Consumers() {
		if c := t.consumers[name]; c != nil {
			rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%d", name, c.processed, c.failed, c.instead, c.dead, c.parked))
		}
	}
	if err := r.rows(rows); err != nil {
		return err
	}
	byConsumer := []string{"consumer\taction\ttimes"}
	keys := slices.SortedFunc(maps.Keys(t.actions), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(slices.Index(r.table.Consumers(), a[0]), slices.Index(r.table.Consumers(), b[0])), cmp.Compare(a[1], b[1]))
	})
	for _, k := range keys {
		byConsumer = append(byConsumer, fmt.Sprintf("%s\t%s\t%d", k[0], k[1], t.actions[k]))
	}
	if err := r.rows(byConsumer); err != nil {
		return err
	}
	r.say("\n  %d cases are frozen, and %d of their later events wait; %d alerts were raised.", frozen, parked, len(t.alerts))
	return nil
}

// letters tells what became of the notifications.
func (r report) letters(ctx context.Context) error {
	return r.query(ctx, "channel\tletters\tdelivered\tread\treturned\tgiven up\tinstead of others\tfailed attempts",
		`SELECT channel, count(*),
			sum(CASE WHEN status IN ('delivered', 'read') THEN 1 ELSE 0 END), sum(CASE WHEN status = 'read' THEN 1 ELSE 0 END),
			sum(CASE WHEN status = 'bounced' THEN 1 ELSE 0 END), sum(CASE WHEN status = 'given_up' THEN 1 ELSE 0 END),
			sum(CASE WHEN instead_of <> '' THEN 1 ELSE 0 END), sum(failures) FROM notifications GROUP BY channel ORDER BY channel`)
}

// cases tells where the cases stand, and how they are judged.
func (r report) cases(ctx context.Context) error {
	return r.query(ctx, "status\tcases\tLOW\tMEDIUM\tHIGH", `SELECT c.status, count(*),
		sum(CASE WHEN coalesce(p.risk_level, 'LOW') = 'LOW' THEN 1 ELSE 0 END), sum(CASE WHEN p.risk_level = 'MEDIUM' THEN 1 ELSE 0 END),
		sum(CASE WHEN p.risk_level = 'HIGH' THEN 1 ELSE 0 END)
		FROM cases c LEFT JOIN risk_profiles p ON p.case_id = c.case_id GROUP BY c.status ORDER BY c.status`)
}

// frozen tells of the cases that stand still.
func (r report) frozen(letters []eventing.DeadLetter) error {
	rows := []string{"event\tattempts\tlater events waiting\tproblem"}
	for i, d := range letters {
		if i == fewEnough {
			rows = append(rows, fmt.Sprintf("… and %d more", len(letters)-i))
			break
		}
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%s", d.EventID, d.AttemptCount, d.ParkedBehind, d.Message))
	}
	return r.rows(rows)
}

const fewEnough = 8 // to be shown one by one
