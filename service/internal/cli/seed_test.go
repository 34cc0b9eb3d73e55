package cli_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/store"
)

// seedSQL makes n dead letters, e100001 and so on, the oldest first; of every four one is of
// search, the others are of billing. There are 100 ordering keys.
const seedSQL = `
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $N)
INSERT INTO dead_letter_events (event_id, event_type, payload, error)
SELECT 'e' || CAST(100000 + i AS text), CASE i % 2 WHEN 0 THEN 'order.placed' ELSE 'order.paid' END,
	'{"event_id":"e' || CAST(100000 + i AS text) || '","event_type":"' || CASE i % 2 WHEN 0 THEN 'order.placed' ELSE 'order.paid' END ||
	'","occurred_at":"2026-02-26T12:00:00Z","correlation_id":"c","tenant_id":"","station_id":"","schema_version":1,"aggregate_type":"order","aggregate_id":"' ||
	CAST(i % 100 AS text) || '","payload":{"amount":' || CAST(i AS text) || '}}', 'no answer'
FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $N)
INSERT INTO dead_letter_consumers (event_id, consumer_name, stage, reason_code, reason_message, attempt_count, attempt_history, status, created_at, updated_at, expires_at)
SELECT 'e' || CAST(100000 + i AS text), CASE i % 4 WHEN 0 THEN 'search' ELSE 'billing' END, 'handle', 'RETRIES_EXHAUSTED', 'no answer within ' || CAST(i AS text) || 's', 1,
	'[{"attempt":1,"at":"2026-02-26T12:00:00Z","outcome":"failed","errorCode":"TIMEOUT","errorMessage":"no answer"}]', 'pending', $CREATED, $CREATED, $EXPIRES
FROM n;
INSERT INTO event_deliveries (consumer_name, event_id, event_type, partition, state, attempts, payload, attempt_history)
SELECT c.consumer_name, e.event_id, e.event_type, 0, 'dead', 1, e.payload, c.attempt_history
FROM dead_letter_events e JOIN dead_letter_consumers c ON c.event_id = e.event_id`

func (e environment) seed(t *testing.T, n string) {
	t.Helper()
	created, expires := `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '-1 day', '+' || i || ' seconds')`, `strftime('%Y-%m-%dT%H:%M:%f000Z', 'now', '+90 days')`
	if strings.HasPrefix(e["STORE_URL"], "postgres") {
		created, expires = `now() - interval '1 day' + i * interval '1 second'`, `now() + interval '90 days'`
	}
	db := e.open(t)
	must(t, db.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		for _, statement := range strings.Split(strings.NewReplacer("$N", n, "$CREATED", created, "$EXPIRES", expires).Replace(seedSQL), ";\n") {
			if _, err := tx.ExecContext(t.Context(), statement); err != nil {
				return err
			}
		}
		return nil
	}))
}

// open opens the database of an application.
func (e environment) open(t *testing.T) *store.Store {
	t.Helper()
	db, err := store.OpenLibrary(t.Context(), e["STORE_URL"])
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noon is when events die of which the time is printed.
var noon = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)

// die lets an event die at a consumer, after attempts a minute apart.
func die(t *testing.T, db *store.Store, id, consumer, message string, attempts int) eventing.Target {
	t.Helper()
	e := eventing.New("order", "7", json.RawMessage(`{"amount":150,"note":"<b>"}`))
	e.ID, e.Type, e.OccurredAt, e.CorrelationID, e.SchemaVersion = id, "order.placed", noon, "c", 1
	payload, err := eventing.EncodeEnvelope(e)
	must(t, err)
	var history []eventing.Attempt
	for i := range attempts {
		history = append(history, eventing.Attempt{
			Attempt: i + 1, At: noon.Add(time.Duration(i) * time.Minute), Outcome: "failed", ErrorCode: eventing.ReasonTimeout, ErrorMessage: message,
		})
	}
	must(t, db.Events.Fail(t.Context(), eventing.Failure{
		Run: eventing.Run{Delivery: eventing.Delivery{Consumer: consumer, EventID: id, EventType: e.Type, Payload: payload}},
		Now: history[attempts-1].At, State: eventing.StateDead, Attempts: attempts, History: history, Stage: eventing.StageHandle,
		Reason: eventing.ReasonTimeoutExhausted, Message: message, DeadLetterUntil: time.Now().Add(90 * 24 * time.Hour),
	}))
	return eventing.Target{EventID: id, Consumer: consumer}
}

// process lets a consumer process what it has been sent again, or for the first time.
func process(t *testing.T, db *store.Store, target eventing.Target, generation int) {
	t.Helper()
	found, err := eventing.NewDeadLetters(db.Events).List(t.Context(), eventing.DeadLetterFilter{EventID: target.EventID, Consumer: target.Consumer})
	must(t, err)
	i := slices.IndexFunc(found, func(dl eventing.DeadLetter) bool { return dl.Target() == target })
	d := eventing.Delivery{
		Consumer: target.Consumer, EventID: target.EventID, EventType: found[i].EventType, Generation: generation, Payload: bytes.Clone(found[i].Payload),
	}
	_, run, err := db.Events.Arrive(t.Context(), d, nil, noon)
	must(t, err)
	must(t, db.Events.Succeed(t.Context(), eventing.Success{
		Run: run, Now: noon, InboxUntil: time.Now().Add(time.Hour), DeadLetterUntil: time.Now().Add(time.Hour),
	}))
}
