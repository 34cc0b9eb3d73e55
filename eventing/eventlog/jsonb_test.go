package eventlog_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// hostile are documents that JSON allows and JSONB does not, or not for long.
var hostile = []string{
	`"\u0000"`, `{"a\u0000b":1}`, `["\\\u0000"]`, `"\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0061"`, `"\ud800\ud800"`, `"\udc00"`, `"\uDBFF"`,
	`1e16384`, `1e-16384`, `1E+999999999`, `-1.5e-16383`, `0e-20000`, `1e99999999999999999999`, `1e-99999999999999999999`, `[` + strings.Repeat("9", 20_000) + `]`,
	`[` + strings.TrimSuffix(strings.Repeat("1e9999,", 1_000), ",") + `]`,
	nested(5_000),
}

var harmless = []string{
	`null`, `true`, `""`, `"\\u0000"`, `"\\\\u0000"`, `"\ud83d\ude00"`, `"\uD83D\uDE00\u0001"`, `"\uffff"`, `-0`, `-0.0`, `1.500`, `1e2`, `1E-3`, `1e308`, `[1e308,-2.5E-308]`,
	`{"":{"a":[1,2,{"b":"c\"\\"}]},"a":1,"a":2}`, `9007199254740993`, " { \"a\" : 1 } ", nested(1_000), `"` + strings.Repeat("x", 100_000) + `"`,
}

func TestFitsJSONB(t *testing.T) {
	t.Parallel()
	for want, docs := range map[bool][]string{false: hostile, true: harmless} {
		for _, doc := range docs {
			if !json.Valid([]byte(doc)) {
				t.Errorf("%.50s is no JSON", doc)
			}
			if got := eventlog.FitsJSONB([]byte(doc)); got != want {
				t.Errorf("%.50s fits: %v, want %v", doc, got, want)
			}
		}
	}
}

// Whatever it says, it says so of every document, and the same of one without white space.
func FuzzFitsJSONB(f *testing.F) {
	for _, doc := range append(append([]string{}, hostile...), harmless...) {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		var compact bytes.Buffer
		if !utf8.Valid(doc) || json.Compact(&compact, doc) != nil || len(doc) > eventing.MaxEnvelopeBytes {
			return
		}
		if a, b := eventlog.FitsJSONB(doc), eventlog.FitsJSONB(compact.Bytes()); a != b {
			t.Errorf("%s fits: %v; compacted: %v", doc, a, b)
		}
	})
}

// What fits, Postgres takes, and gives it back in a bounded size.
func TestPostgresTakesWhatFits(t *testing.T) {
	t.Parallel()
	b := postgresBase(t)
	try := func(doc string) (size int, err error) {
		err = b.db.QueryRowContext(ctx, `SELECT length(CAST(CAST($1 AS jsonb) AS text))`, doc).Scan(&size)
		return size, err
	}
	for _, doc := range harmless {
		if _, err := try(doc); err != nil {
			t.Errorf("%.50s: %v", doc, err)
		}
	}
	unit := rapid.SampledFrom([]string{`\u`, `\ud800`, `\udc00`, `\u0000`, `0041`, `\\`, `\"`, `x`, `✓`, `d83d`, `\n`})
	texts := rapid.Custom(func(r *rapid.T) string {
		return `"` + strings.Join(rapid.SliceOfN(unit, 0, 6).Draw(r, "units"), "") + `"`
	})
	numbers := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][-+]?[0-9]{1,5})?`)
	rapid.Check(t, func(r *rapid.T) {
		doc := "[" + strings.Join(rapid.SliceOfN(rapid.OneOf(texts, numbers), 0, 5).Draw(r, "values"), ", ") + "]"
		if !json.Valid([]byte(doc)) || !eventlog.FitsJSONB([]byte(doc)) {
			return
		}
		if size, err := try(doc); err != nil || size > len(doc)+2*eventing.MaxEnvelopeBytes {
			r.Fatalf("%s fits, but: %d bytes, %v", doc, size, err)
		}
	})
}

// What does not fit is kept all the same, as it was.
func TestHostilePayloads(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		payloads := map[string]string{}
		var events []eventing.Envelope
		for _, doc := range append(append([]string{}, hostile...), `"an innocent text"`) {
			e := event(eventing.NewID(), "T", noon)
			e.Payload = []byte(doc)
			payloads[e.ID] = doc
			events = append(events, e)
		}
		b.record(t, l, events...)
		entries := b.entries(t, l, eventlog.Filter{})
		if len(entries) != len(payloads) {
			t.Errorf("there are %d entries, want %d", len(entries), len(payloads))
		}
		for _, e := range entries {
			if string(e.Payload) != payloads[e.ID] || e.Metadata != nil {
				t.Errorf("%.50s came back as %.50s, with metadata %v", payloads[e.ID], e.Payload, e.Metadata)
			}
		}
		// As the documentation says, SQL has it too.
		if b.dialect == eventlog.Postgres {
			query := `SELECT payload #>> '{}' FROM events WHERE metadata ->> 'payload_encoding' = 'text'`
			if got := strs(t, b.db, query); len(got) != len(hostile) || !slices.Contains(got, hostile[0]) {
				t.Errorf("%d payloads are kept as text, such as %.50s; want %d", len(got), got[0], len(hostile))
			}
		}
	})
}

// A row that says that its payload is a text, and has none, was not written by the log.
func TestPayloadThatIsNoText(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata) VALUES ('T', $1, '', $1, '{}', '{"payload_encoding": "text"}')`, aUUID)
		var last error
		for _, err := range b.log(t).Each(ctx, b.db, eventlog.Filter{}) {
			last = errors.Join(last, err)
		}
		if last == nil || !strings.Contains(last.Error(), aUUID) {
			t.Errorf("got %v, want an error about the event", last)
		}
	})
}
