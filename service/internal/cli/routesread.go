package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/eventing"
)

// within returns what fn returns, or why ctx has ended, once it has: fn, which may wait for the other end of a pipe, is left behind
// then, for the program is about to end.
func within[T any](ctx context.Context, fn func() (T, error)) (result T, err error) {
	type outcome struct {
		result T
		err    error
	}
	if ctx.Err() != nil {
		return result, context.Cause(ctx)
	}
	done := make(chan outcome, 1)
	go func() {
		result, err := fn()
		done <- outcome{result, err}
	}()
	select {
	case o := <-done:
		return o.result, o.err
	case <-ctx.Done():
		return result, context.Cause(ctx)
	}
}

// openUntil is open for a file of which the reading ends with ctx, too.
func (p *Program) openUntil(ctx context.Context, path string) (io.ReadCloser, error) {
	in, err := within(ctx, func() (io.ReadCloser, error) { return p.open(path) })
	if err != nil {
		return nil, err
	}
	from, to := io.Pipe()
	go func() {
		_, err := io.Copy(to, in)
		_ = to.CloseWithError(err) // never fails
	}()
	stop := context.AfterFunc(ctx, func() { _ = to.CloseWithError(context.Cause(ctx)) })
	return &untilDone{from, in, stop}, nil
}

type untilDone struct {
	*io.PipeReader

	in   io.Closer
	stop func() bool
}

func (u *untilDone) Close() error {
	u.stop()
	return errors.Join(u.PipeReader.Close(), u.in.Close())
}

// called is what messages call the file at a path.
func called(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// maxSkipped bounds a line that is too long for an event. Beyond it, the file is none of events.
const maxSkipped = 64 << 20

// nextLine returns a line, or the beginning of one that is longer than any event.
func nextLine(r *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for n := 0; ; {
		part, err := r.ReadSlice('\n')
		n += len(part)
		if whole = whole && n <= eventing.MaxEnvelopeBytes+1; whole {
			line = append(line, part...)
		}
		switch {
		case n > maxSkipped:
			return nil, false, fmt.Errorf("it goes on for more than %d MiB: this is no file with an event on each line", maxSkipped>>20)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && n > 0, err == nil:
			return line, whole, nil
		default:
			return nil, false, err
		}
	}
}

// several reports whether a text begins with one JSON object and goes on with another.
func several(text []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	var first, second map[string]json.RawMessage
	return dec.Decode(&first) == nil && dec.Decode(&second) == nil
}

// decodeWritten decodes an envelope that may be written by hand, without an id and a time: then they are these. A zero time is none.
func decodeWritten(text []byte, id string, at time.Time) (eventing.Envelope, error) {
	e, err := eventing.DecodeEnvelope(text)
	var invalid *eventing.InvalidEventError
	if !errors.As(err, &invalid) {
		return e, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(text, &fields) != nil || fields == nil {
		return e, notAnObject(text, err)
	}
	if !slices.Contains([]string{"event_id", "occurred_at"}, invalid.Field) {
		return e, renamed(fields, err)
	}
	_, named := fields["event_id"]
	if !named {
		fields["event_id"], _ = json.Marshal(id) // a text always encodes
	}
	if _, given := fields["occurred_at"]; !given && !at.IsZero() {
		fields["occurred_at"], _ = json.Marshal(at.UTC()) // and so does a time
	}
	if text, err = json.Marshal(fields); err != nil {
		return e, err
	}
	e, err = eventing.DecodeEnvelope(text)
	if errors.As(err, &invalid) && !named {
		err = &eventing.InvalidEventError{Field: invalid.Field, Problem: invalid.Problem}
	}
	return e, renamed(fields, err)
}

// notAnObject says what a text is that is no JSON object, if it is JSON.
func notAnObject(text []byte, err error) error {
	switch text = bytes.TrimSpace(text); {
	case !json.Valid(text), !utf8.Valid(text):
		return err
	case text[0] == '[':
		return errors.New("not an envelope, but a JSON array: write its events on a line each, such as with jq -c '.[]'")
	}
	return errors.New("not an envelope: it is not a JSON object")
}

// otherNames are what fields of an envelope are called elsewhere.
var otherNames = map[string][]string{"event_type": {"type", "eventType"}, "payload": {"data"}}

// renamed adds to an error what was probably meant.
func renamed(fields map[string]json.RawMessage, err error) error {
	var invalid *eventing.InvalidEventError
	if !errors.As(err, &invalid) {
		return err
	}
	if _, given := fields[invalid.Field]; given {
		return err
	}
	for _, other := range otherNames[invalid.Field] {
		if _, given := fields[other]; given {
			return fmt.Errorf("%w; did you mean %q where it says %q?", err, invalid.Field, other)
		}
	}
	return err
}
