package eventlog_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

const aUUID = "0198a000-1111-7222-8333-444455556666"

// row is a row of the table as it is.
func (b base) row(t *testing.T, eventID string) map[string]string {
	t.Helper()
	columns := []string{"event_type", "event_id", "aggregate_type", "aggregate_id", "payload", "metadata", "created_at", "processed_at", "retry_count", "status"}
	values, dest := make([]string, len(columns)), make([]any, len(columns))
	list := make([]string, len(columns))
	for i, c := range columns {
		dest[i], list[i] = &values[i], "CAST("+c+" AS text)"
		if strings.HasSuffix(c, "_at") && b.dialect == eventlog.Postgres {
			list[i] = `to_char(` + c + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
		}
	}
	err := b.db.QueryRowContext(ctx, "SELECT "+strings.Join(list, ", ")+" FROM events WHERE event_id = $1", eventID).Scan(dest...)
	if err != nil {
		t.Fatal(err)
	}
	row := map[string]string{}
	for i, c := range columns {
		row[c] = strings.ReplaceAll(strings.ReplaceAll(values[i], ": ", ":"), ", ", ",")
	}
	return row
}

func TestRecordFillsTheColumns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		full := eventing.Envelope{Header: eventing.Header{
			ID: aUUID, Type: "case_created", OccurredAt: noon.Add(-time.Hour + 123456789), CorrelationID: "request-1", CausationID: "cause-1",
			TenantID: "tenant-1", StationID: "station-1", SchemaVersion: 2, AggregateType: "case", AggregateID: "GA-7",
			OrderingKey: "citizen/7", IdempotencyKey: "case_created:GA-7",
			TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TraceState: "vendor=1",
		}, Payload: []byte(`{"priority":"high"}`)}
		attempt := eventing.WithAttempt(ctx, eventing.CurrentAttempt{Consumer: "event_log", Number: 3, RoutingVersion: "0123456789ab"})
		if err := l.Record(attempt, b.db, full, map[string]any{"actor": map[string]any{"role": "case_handler"}}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"event_type": "case_created", "event_id": aUUID, "aggregate_type": "case", "aggregate_id": eventlog.UUID("GA-7"), "payload": `{"priority":"high"}`,
			"created_at": "2026-02-26T11:00:00.123456Z", "processed_at": "2026-02-26T12:00:00.000000Z", "retry_count": "2", "status": "processed",
		}
		got := b.row(t, aUUID)
		var meta map[string]any
		if err := json.Unmarshal([]byte(got["metadata"]), &meta); err != nil {
			t.Fatal(err)
		}
		delete(got, "metadata")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the row is\n%v\nwant\n%v", got, want)
		}
		wantMeta := map[string]any{
			"aggregate_id": "GA-7", "occurred_at": "2026-02-26T11:00:00.123456789Z", "correlation_id": "request-1", "causation_id": "cause-1",
			"tenant_id": "tenant-1", "station_id": "station-1", "schema_version": 2.0, "ordering_key": "citizen/7",
			"idempotency_key": "case_created:GA-7", "traceparent": full.TraceParent, "tracestate": "vendor=1",
			"routing_version": "0123456789ab", "actor": map[string]any{"role": "case_handler"},
		}
		if !reflect.DeepEqual(meta, wantMeta) {
			t.Errorf("the metadata is\n%v\nwant\n%v", meta, wantMeta)
		}
		e := b.entries(t, l, eventlog.Filter{})[0]
		if e.RoutingVersion != "0123456789ab" || e.RetryCount != 2 || e.Status != "processed" || !e.ProcessedAt.Equal(noon) || eventlog.UUID(e.RowID) != e.RowID {
			t.Errorf("the entry is %+v", e)
		}
		if !reflect.DeepEqual(e.Metadata, map[string]any{"actor": map[string]any{"role": "case_handler"}}) {
			t.Errorf("the metadata of the entry is %v", e.Metadata)
		}
	})
}

// The least that an event can say.
func TestRecordWithoutAggregate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		for id, aggregateType := range map[string]string{aUUID: "", "e2": "case"} {
			e := eventing.Envelope{Header: eventing.Header{ID: id, Type: "T", OccurredAt: noon, SchemaVersion: 1, AggregateType: aggregateType}, Payload: []byte(`null`)}
			b.record(t, l, e)
			row := b.row(t, eventlog.UUID(id))
			if row["aggregate_id"] != eventlog.UUID(id) || row["aggregate_type"] != aggregateType || row["retry_count"] != "0" || row["payload"] != "null" {
				t.Errorf("an event without aggregate is one of its own: %v", row)
			}
		}
		for _, e := range b.entries(t, l, eventlog.Filter{}) {
			if e.AggregateID != "" || e.Metadata != nil || e.RoutingVersion != "" {
				t.Errorf("the entry is %+v", e)
			}
		}
	})
}

// What the texts become is what others make of them, too: these are from Python's uuid.uuid5.
func TestUUID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		aUUID:                                  aUUID,
		"00000000-0000-0000-0000-000000000000": "00000000-0000-0000-0000-000000000000",
		"GA-20240115-0042":                     "3e6e419f-78f0-5cdd-bef3-1b55ebb1be38",
		"":                                     "37e66509-6de6-55a1-bc96-a568c43dfff5",
		"Überweisung ✓":                        "24e752a3-6fd5-5f7a-a8f0-c10c4eebe1ef",
		"0198A000-1111-7222-8333-444455556666": "534c7823-96cf-58b4-9544-3f254011a69e",
		"{" + aUUID + "}":                      "f9204670-9e9c-5052-a8b4-8b282741a782",
		"0198a000111172228333444455556666":     "a8a7b5b1-2050-5511-b0dc-194e42dc2db9",
		"0198a0000111107222083330444455556666": "92c1a623-d029-5ab3-8a6a-166de8b564d5",
		"019ga000-1111-7222-8333-444455556666": "1f68240f-9b5b-5955-9615-d9b1994e49ad",
	} {
		if got := eventlog.UUID(id); got != want {
			t.Errorf("UUID(%q) is %s, want %s", id, got, want)
		}
	}
}

func TestRecordOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		first, again := event("e1", "case_created", noon), event("e1", "case_created", noon.Add(time.Hour))
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := l.Record(ctx, b.db, first, nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		b.record(t, l, first, again, event("E1", "case_created", noon.Add(time.Minute)))
		if err := b.inTx(func(tx *sql.Tx) error {
			return errors.Join(l.Record(ctx, tx, event("e2", "case_created", noon), nil), errors.New("rolled back"))
		}); err == nil {
			t.Error("the transaction was to be rolled back")
		}
		entries := b.entries(t, l, eventlog.Filter{})
		if got := ids(entries); !reflect.DeepEqual(got, []string{"e1", "E1"}) || !entries[0].OccurredAt.Equal(noon) {
			t.Errorf("the log has %v, of %v: want each event once, as it was first", got, entries[0].OccurredAt)
		}
	})
}

// What the log cannot take changes nothing, not even the transaction.
func TestRecordRefuses(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		with := func(change func(e *eventing.Envelope)) eventing.Envelope {
			e := event("e1", "case_created", noon)
			change(&e)
			return e
		}
		type refusal struct {
			name     string
			e        eventing.Envelope
			metadata map[string]any
			want     string
		}
		good := event("e1", "case_created", noon)
		cases := []refusal{
			{"no id", with(func(e *eventing.Envelope) { e.ID = "" }), nil, "event_id is empty"},
			{"no type", with(func(e *eventing.Envelope) { e.Type = "" }), nil, "event_type is empty"},
			{"no time", with(func(e *eventing.Envelope) { e.OccurredAt = time.Time{} }), nil, "occurred_at is missing"},
			{"year 0 in UTC", with(func(e *eventing.Envelope) {
				e.OccurredAt = time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
			}), nil, "occurred_at"},
			{"NUL", with(func(e *eventing.Envelope) { e.AggregateID = "a\x00b" }), nil, "aggregate_id contains a NUL"},
			{"no payload", with(func(e *eventing.Envelope) { e.Payload = nil }), nil, "payload is missing"},
			{"no JSON", with(func(e *eventing.Envelope) { e.Payload = []byte(`{"a"`) }), nil, "payload"},
			{"too large", with(func(e *eventing.Envelope) {
				e.Payload = []byte(`"` + strings.Repeat("x", eventing.MaxEnvelopeBytes) + `"`)
			}), nil, "bytes"},
			{"a value that is not JSON", good, map[string]any{"x": func() {}}, "metadata of e1"},
			{"large metadata", good, map[string]any{"x": strings.Repeat("x", eventing.MaxEnvelopeBytes)}, "metadata of e1"},
		}
		for _, key := range []string{
			"event_id", "aggregate_id", "occurred_at", "correlation_id", "causation_id", "tenant_id", "station_id", "schema_version",
			"ordering_key", "idempotency_key", "traceparent", "tracestate", "routing_version", "payload_encoding",
		} {
			cases = append(cases, refusal{key, good, map[string]any{"actor": 1, key: "x"}, fmt.Sprintf("%q", key)})
		}
		if b.dialect == eventlog.Postgres {
			cases = append(cases, refusal{"NUL in metadata", good, map[string]any{"x": "a\x00b"}, "JSONB"})
		}
		if err := b.inTx(func(tx *sql.Tx) error {
			for _, c := range cases {
				err := l.Record(ctx, tx, c.e, c.metadata)
				if err == nil || !strings.Contains(err.Error(), c.want) || !eventing.IsPermanent(err) || eventing.ReasonOf(err) != eventlog.ReasonNotLoggable {
					t.Errorf("%s: got %v, permanent %v; want a permanent error about %s", c.name, err, eventing.IsPermanent(err), c.want)
				}
			}
			return l.Record(ctx, tx, event("e2", "case_created", noon), nil)
		}); err != nil {
			t.Errorf("after refusals the transaction goes on: %v", err)
		}
		if got := ids(b.entries(t, l, eventlog.Filter{})); !reflect.DeepEqual(got, []string{"e2"}) {
			t.Errorf("the log has %v, want e2 alone", got)
		}
	})
}

// The database's own errors are not permanent.
func TestRecordFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		b.exec(t, `DROP TABLE events`)
		if err := b.log(t).Record(ctx, b.db, event("e1", "T", noon), nil); err == nil || eventing.IsPermanent(err) || !strings.Contains(err.Error(), "record e1") {
			t.Errorf("got %v", err)
		}
	})
}
