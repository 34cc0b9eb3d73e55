package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
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
	return fmt.Errorf("%s: %s no events, and left out; each has to be an envelope, as eventing.EncodeEnvelope writes it:\n%s%s",
		path, are(b.n, "line"), strings.Join(b.first, "\n"), more)
}

// eventsIn reads the events of a file, one on each line.
func (p *Program) eventsIn(path string) (*recorded, error) {
	in, err := p.open(path)
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
			if err != nil {
				r.err = fmt.Errorf("%s, line %d: %w", path, n, err)
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
			e, err := eventing.DecodeEnvelope(line)
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

// nextLine returns a line, or the beginning of one that is longer than any event.
func nextLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := r.ReadSlice('\n')
		if whole = whole && len(line)+len(part) <= eventing.MaxEnvelopeBytes+1; whole {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (len(line) > 0 || !whole), err == nil:
			return line, whole, nil
		default:
			return nil, false, err
		}
	}
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
	log, err := logOf(ctx, s, address)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	r := &recorded{close: s.Close}
	r.events = func(yield func(eventing.Envelope) bool) {
		for entry, err := range log.Each(ctx, s.Read, f) {
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
func (p *Program) eventIn(path, id string) (eventing.Envelope, error) {
	if id != "" {
		r, err := p.eventsIn(path)
		if err != nil {
			return eventing.Envelope{}, err
		}
		e, err := r.find(id)
		if err == nil || r.broken.n == 0 {
			return e, err
		}
		return e, errors.Join(err, r.broken.in(path))
	}
	in, err := p.open(path)
	if err != nil {
		return eventing.Envelope{}, err
	}
	text, err := io.ReadAll(io.LimitReader(in, eventing.MaxEnvelopeBytes+1))
	if err = errors.Join(err, in.Close()); err != nil {
		return eventing.Envelope{}, err
	}
	e, err := decodeWritten(text)
	if err != nil && several(text) {
		return e, usage("%s has several events: say which with --event-id ID", path)
	}
	if err != nil {
		return e, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

// find returns the event with an id.
func (r *recorded) find(id string) (found eventing.Envelope, err error) {
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
		return found, fmt.Errorf("there is no event %s", id)
	}
	return found, nil
}

// several reports whether a text begins with one JSON object and goes on with another.
func several(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	var first, second map[string]json.RawMessage
	return dec.Decode(&first) == nil && dec.Decode(&second) == nil
}

// decodeWritten decodes an envelope that may be written by hand, without an id and a time.
func decodeWritten(text []byte) (eventing.Envelope, error) {
	e, err := eventing.DecodeEnvelope(text)
	var invalid *eventing.InvalidEventError
	if !errors.As(err, &invalid) || !slices.Contains([]string{"event_id", "occurred_at"}, invalid.Field) {
		return e, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return e, err
	}
	for name, value := range map[string]any{"event_id": "unnamed", "occurred_at": time.Now().UTC()} {
		if _, given := fields[name]; !given {
			fields[name], _ = json.Marshal(value) // a text and a time always encode
		}
	}
	if text, err = json.Marshal(fields); err != nil {
		return e, err
	}
	return eventing.DecodeEnvelope(text)
}
