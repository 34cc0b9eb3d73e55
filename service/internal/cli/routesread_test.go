package cli_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/service/internal/cli"
)

func diffOf(ctx context.Context, events io.Reader) ended {
	return waybill().start(ctx, cli.Program{
		Args: []string{"routes", "diff", routesDir + "routes.yaml", routesDir + "new.yaml", "--events", "-"}, Stdin: events,
	})
}

// readerFunc is a reader that is a function.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A signal ends what reads, whatever is read.
func TestRoutesReadingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	const event = `{"event_type":"order_cancelled","payload":{}}` + "\n"
	for name, line := range map[string]string{"events": event, "no events": "x\n", "a line": strings.Repeat("x", 10_000), "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			released := make(chan struct{})
			defer close(released)
			read := 0
			r := diffOf(ctx, readerFunc(func(b []byte) (int, error) {
				if read++; read == 100 || line == "" {
					cancel(io.ErrClosedPipe)
				}
				if line == "" {
					<-released
					return 0, io.EOF
				}
				return copy(b, line), nil
			}))
			if want := (ended{1, "", "waybill: " + io.ErrClosedPipe.Error() + "\n"}); r != want {
				t.Errorf("%+v, want %+v", r, want)
			}
		})
	}
}

// Without a line's end, there is no end of what would have to be skipped.
func TestRoutesEndlessLine(t *testing.T) {
	t.Parallel()
	r := diffOf(t.Context(), readerFunc(func(b []byte) (int, error) { return len(b), nil }))
	if r.code != 1 || r.stdout != "" || !strings.Contains(r.stderr, "standard input, line 1: it goes on for more than 64 MiB: this is no file with") {
		t.Errorf("%+v", r)
	}
}

func TestRoutesExplainUnreadable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                       `standard input is empty: there has to be an event's envelope, such as {"event_type": "order_placed"`,
		" \n":                    "standard input is empty",
		`{"payload": {}}`:        "standard input: invalid event: event_type is empty\n",
		`{"type": "a"}`:          `did you mean "event_type" where it says "type"?`,
		`{"event_type": "a"}`:    "payload is missing\n",
		`[{"event_type": "a"}]`:  "standard input: not an envelope, but a JSON array",
		`7`:                      "not an envelope: it is not a JSON object",
		`null`:                   "not an envelope: it is not a JSON object",
		`{"event_type": "a"} {}`: "standard input has several events: say which with --event-id ID",
	} {
		r := waybill().start(t.Context(), cli.Program{Args: []string{"routes", "explain", routesDir + "routes.yaml", "-"}, Stdin: strings.NewReader(text)})
		if r.code == 0 || r.stdout != "" || !strings.Contains(r.stderr, want) {
			t.Errorf("%q: %+v, want %s", text, r, want)
		}
	}
}
