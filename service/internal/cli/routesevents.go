package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/service/internal/store"
)

// recorded yields events that were recorded. What is wrong with them as a whole is in err afterwards; what keeps a
// single one from being read is not, see brokenLines.
type recorded struct {
	events iter.Seq[eventing.Envelope]
	err    error
	broken brokenLines
	close  func() error
}

// brokenLines are the lines of a file that are no events.
type brokenLines struct {
	n     int
	first []string
}

const maxBroken = 5

const anEnvelope = `{"event_type": "order_placed", "payload": {…}}`

func (b *brokenLines) add(line int, err error) {
	if b.n++; len(b.first) < maxBroken {
		b.first = append(b.first, fmt.Sprintf("line %d: %v", line, err))
	}
}

// in is the error about a file; nil if all its lines are events.
func (b *brokenLines) in(path string) error {
	if b.n == 0 {
		return nil
	}
	more := ""
	if n := b.n - len(b.first); n > 0 {
		more = fmt.Sprintf("\nand %d more", n)
	}
	no := "no events"
	if b.n == 1 {
		no = "no event"
	}
	return fmt.Errorf("%s: %s %s, and left out; an event is an envelope, all of it on one line, such as %s:\n%s%s",
		called(path), are(b.n, "line"), no, anEnvelope, strings.Join(b.first, "\n"), more)
}

// eventsIn reads the events of a file, one on each line. One without an id is called by its line, and one without a time is of at;
// if that is zero, it is none.
func (p *Program) eventsIn(ctx context.Context, path string, at time.Time) (*recorded, error) {
	in, err := p.openUntil(ctx, path)
	if err != nil {
		return nil, err
	}
	r := &recorded{close: in.Close}
	r.events = func(yield func(eventing.Envelope) bool) {
		lines := bufio.NewReaderSize(in, 64<<10)
		for n := 1; ; n++ {
			line, whole, err := nextLine(lines)
			if errors.Is(err, io.EOF) {
				return
			}
			if ctx.Err() != nil {
				r.err = context.Cause(ctx)
				return
			}
			if err != nil {
				r.err = fmt.Errorf("%s, line %d: %w", called(path), n, err)
				return
			}
			if line = bytes.TrimSpace(line); n == 1 {
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			}
			if len(line) == 0 {
				continue
			}
			if !whole {
				r.broken.add(n, fmt.Errorf("it has more than %d bytes", eventing.MaxEnvelopeBytes))
				continue
			}
			e, err := decodeWritten(line, fmt.Sprintf("line-%d", n), at)
			if invalid := (*eventing.InvalidEventError)(nil); at.IsZero() && errors.As(err, &invalid) && invalid.Field == "occurred_at" {
				err = fmt.Errorf("%w; --since and --until ask for it", err)
			}
			if err != nil {
				r.broken.add(n, err)
				continue
			}
			if !yield(e) {
				return
			}
		}
	}
	return r, nil
}

// eventsOf reads the event log of the database.
func (p *Program) eventsOf(ctx context.Context, f eventlog.Filter) (*recorded, error) {
	address, err := p.store()
	if err != nil {
		return nil, err
	}
	s, err := p.tool.open(ctx, address)
	if err != nil {
		return nil, err
	}
	log, err := logOf(ctx, s.SQL, address)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	r := &recorded{close: s.Close}
	r.events = func(yield func(eventing.Envelope) bool) {
		for entry, err := range log.Each(ctx, s.SQL.Read, f) {
			if err != nil {
				r.err = err
				return
			}
			if !yield(entry.Envelope()) {
				return
			}
		}
	}
	return r, nil
}

// logOf returns the database's event log.
func logOf(ctx context.Context, s *store.Store, address string) (*eventlog.Log, error) {
	if s == nil {
		return nil, fmt.Errorf("the database %q has no event log: package eventlog works on SQL databases; give --events FILE", store.Masked(address))
	}
	dialect := eventlog.Postgres
	if s.Embedded {
		dialect = eventlog.SQLite
	}
	rows, err := s.Read.QueryContext(ctx, `SELECT event_id, created_at FROM events LIMIT 0`)
	if err != nil {
		return nil, fmt.Errorf("the database %q has no event log, which is a table of package eventlog: record events there, or give --events FILE: %w", store.Masked(address), err)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	return eventlog.New(eventlog.Config{Dialect: dialect})
}

// eventIn reads one event from a file; what a person leaves out when writing one is added.
func (p *Program) eventIn(ctx context.Context, path, id string) (eventing.Envelope, error) {
	if id != "" {
		r, err := p.eventsIn(ctx, path, time.Now())
		if err != nil {
			return eventing.Envelope{}, err
		}
		e, err := r.find(id, called(path))
		if err == nil || r.broken.n == 0 {
			return e, err
		}
		return e, errors.Join(err, r.broken.in(path))
	}
	in, err := p.openUntil(ctx, path)
	if err != nil {
		return eventing.Envelope{}, err
	}
	text, err := io.ReadAll(io.LimitReader(in, eventing.MaxEnvelopeBytes+1))
	if err = errors.Join(err, in.Close()); err != nil {
		return eventing.Envelope{}, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return eventing.Envelope{}, fmt.Errorf("%s is empty: there has to be an event's envelope, such as %s", called(path), anEnvelope)
	}
	e, err := decodeWritten(text, "unnamed", time.Now())
	if err != nil && several(text) {
		return e, usage("%s has several events: say which with --event-id ID", called(path))
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", called(path), err)
	}
	return e, nil
}

// find returns the event with an id: the first, in case there are several. where is for messages.
func (r *recorded) find(id, where string) (found eventing.Envelope, err error) {
	is := func(e eventing.Envelope) bool { return e.ID == id }
	missing := true
	for e := range r.events {
		if is(e) {
			found, missing = e, false
			break
		}
	}
	if err := errors.Join(r.err, r.close()); err != nil {
		return found, err
	}
	if missing {
		return found, fmt.Errorf("there is no event %s in %s", id, where)
	}
	return found, nil
}
