package eventlog_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// envelopes are events of all kinds. Strings are whatever an envelope allows.
func envelopes() *rapid.Generator[eventing.Envelope] {
	text := func(limit int) *rapid.Generator[string] {
		return rapid.OneOf(rapid.SampledFrom([]string{"", "case", "GA-7", aUUID, strings.ToUpper(aUUID), `"`, `\u0000`, "null", "7", "ü✓😀", " "}), rapid.StringN(0, 20, limit)).
			Filter(func(s string) bool { return !strings.ContainsRune(s, 0) })
	}
	payload := rapid.OneOf(
		rapid.SampledFrom(append(append([]string{}, hostile[:len(hostile)-3]...), harmless[:len(harmless)-2]...)),
		rapid.Custom(func(r *rapid.T) string {
			value := rapid.OneOf(
				rapid.Custom(func(r *rapid.T) any { return rapid.String().Draw(r, "s") }),
				rapid.Custom(func(r *rapid.T) any { return rapid.Float64Range(-1e300, 1e300).Draw(r, "f") }),
				rapid.Custom(func(r *rapid.T) any { return rapid.Int64().Draw(r, "i") }),
				rapid.Just[any](nil), rapid.Just[any]([]any{true, []any{}}),
			)
			b, err := json.Marshal(rapid.MapOfN(rapid.String(), value, 0, 4).Draw(r, "payload"))
			if err != nil {
				r.Fatal(err)
			}
			return string(b)
		}),
	)
	return rapid.Custom(func(r *rapid.T) eventing.Envelope {
		draw := func(name string, limit int) string { return text(limit).Draw(r, name) }
		at := time.Unix(rapid.Int64Range(-62135596800, 253402300799).Draw(r, "seconds"), rapid.SampledFrom([]int64{0, 1, 999, 1000, 123456789, 999999999}).Draw(r, "ns"))
		return eventing.Envelope{Header: eventing.Header{
			ID: "e-" + draw("id", 100), Type: "t-" + draw("type", 100), OccurredAt: at.In(time.FixedZone("", 3600*rapid.IntRange(-12, 12).Draw(r, "zone"))),
			CorrelationID: draw("correlation", 200), CausationID: draw("causation", 200), TenantID: draw("tenant", 200), StationID: draw("station", 200),
			SchemaVersion: rapid.IntRange(1, 1<<31).Draw(r, "version"), AggregateType: draw("aggregate type", 200), AggregateID: draw("aggregate id", 200),
			OrderingKey: draw("ordering key", 200), IdempotencyKey: draw("idempotency key", 200),
			TraceParent: draw("trace parent", 200), TraceState: draw("trace state", 200),
		}, Payload: json.RawMessage(payload.Draw(r, "payload"))}
	}).Filter(func(e eventing.Envelope) bool {
		_, err := eventing.EncodeEnvelope(e)
		return err == nil && e.OccurredAt.UTC().Year() > 0
	})
}

// value is what a JSON document says, whatever way it is written.
func value(doc []byte) any {
	var v any
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return err
	}
	return plain(v)
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		return fmt.Sprint(r, ok)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// What was recorded is what comes back, to the last nanosecond: the same envelope but for how JSONB
// writes a payload, and the same metadata.
func TestRecordedIsReadBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		rapid.Check(t, func(r *rapid.T) {
			b.empty(r)
			events := rapid.SliceOfNDistinct(envelopes(), 1, 4, func(e eventing.Envelope) string { return e.ID }).Draw(r, "events")
			given := map[string]eventing.Envelope{}
			meta := map[string]any{"a note": rapid.String().Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }).Draw(r, "note"), "n": json.Number("9007199254740993")}
			if err := b.inTx(func(tx *sql.Tx) error {
				for _, e := range append(events, events...) { // the second time changes nothing
					given[e.ID] = e
					if err := l.Record(ctx, tx, e, meta); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				r.Fatal(err)
			}
			for _, entry := range b.entries(r, l, eventlog.Filter{}) {
				want, known := given[entry.ID]
				delete(given, entry.ID)
				want.OccurredAt = want.OccurredAt.UTC()
				got := entry.Envelope()
				exact := b.dialect == eventlog.SQLite || !eventlog.FitsJSONB(want.Payload)
				if exact && !bytes.Equal(got.Payload, want.Payload) || !reflect.DeepEqual(value(got.Payload), value(want.Payload)) {
					r.Fatalf("the payload is\n%s\nwant\n%s", got.Payload, want.Payload)
				}
				got.Payload = want.Payload
				if !known || !reflect.DeepEqual(got, want) {
					r.Fatalf("read\n%+v\nrecorded\n%+v", got, want)
				}
				if !reflect.DeepEqual(entry.Metadata, meta) {
					r.Fatalf("the metadata is %v, want %v", entry.Metadata, meta)
				}
			}
			if len(given) > 0 {
				r.Fatalf("not in the log: %v", given)
			}
		})
	})
}
