package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Each window leads to one settlement. One that fails has a failed outbox row and a
// dead letter, which counts what fails again; the documented SQL sends it to where it
// failed, and there it is settled, once.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address, testConfig())
		for _, station := range []string{"s1", "s2"} {
			w.setTariff("aurora", station, 20)
			w.setTariff("boreal", station, 30)
		}
		var healthy []string
		for range 5 {
			for _, tenant := range []string{"aurora", "boreal"} {
				healthy = append(healthy, w.closes(t.Context(), tenant, "s1"), w.closes(t.Context(), tenant, "s2"))
			}
		}
		poor := w.closes(t.Context(), "aurora", "s3") // has no tariff
		w.waitUntilQuiet()

		if f := w.audit(); !maps.EqualFunc(f, findings{lost: {poor}, inTrouble: f[inTrouble], unnoted: f[inTrouble]}, slices.Equal) || len(f[inTrouble]) != 1 {
			t.Fatalf("got %v, want nothing but the one window to be without a settlement, and in trouble", f)
		}
		dead := w.audit()[inTrouble][0]
		first := w.deadLetter(dead)
		if first.attempts != 3 || first.eventType != "StatisticCalculated" || first.error != "aurora/s3 has no tariff" {
			t.Errorf("got the dead letter %+v", first)
		}
		if e := first.envelope; e.ID != dead || e.TenantID != "aurora" || e.StationID != "s3" || !strings.Contains(string(e.Payload), poor) {
			t.Errorf("got %+v, want the envelope of the station's statistic", e)
		}
		if got, want := w.statuses(dead), []string{"failed"}; !slices.Equal(got, want) {
			t.Errorf("got the outbox rows %v, want %v", got, want)
		}

		w.setTariff("aurora", "s3", -50) // mended badly
		w.replay(dead)
		again := w.deadLetter(dead)
		if again.attempts != 4 || again.error != "the tariff of aurora/s3 is -50 ct per kWh" || !again.first.Equal(first.first.Time) || !again.last.After(first.last.Time) {
			t.Errorf("failed again: got %+v after %+v; want one attempt more, the new error, the first time kept and the last moved", again, first)
		}
		if got, want := w.statuses(dead), []string{"failed", "failed"}; !slices.Equal(got, want) {
			t.Errorf("failed again: got the outbox rows %v, want %v", got, want)
		}

		w.setTariff("aurora", "s3", 50)
		w.replay(dead)
		if err := w.audit().err(); err != nil {
			t.Error(err)
		}
		if got, want := w.statuses(dead), []string{"failed", "failed", "sent"}; !slices.Equal(got, want) {
			t.Errorf("mended: got the outbox rows %v, want %v", got, want)
		}
		w.replay(dead) // once too often
		if err := w.audit().err(); err != nil {
			t.Errorf("after one more replay: %v", err)
		}
		if got, want := w.texts(`SELECT resolution FROM dead_letter_consumers WHERE event_id = $1`, dead), []string{"resolved"}; !slices.Equal(got, want) {
			t.Errorf("got the dead letter %v, want %v", got, want)
		}

		// 10 windows of 0.6 kWh each, and the one that was replayed.
		if got, want := w.texts(`SELECT tenant_id || ' ' || windows || ' ' || cents FROM bills ORDER BY tenant_id`), []string{"aurora 11 150", "boreal 10 180"}; !slices.Equal(got, want) {
			t.Errorf("got the bills %v, want %v", got, want)
		}
		for _, id := range append(healthy, poor) {
			w.checkChain(id, "")
		}
	})
}

// Without samples there is no statistic. The payload of a dead letter can be mended,
// too.
func TestEmptyWindow(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address, testConfig())
		w.setTariff("aurora", "s1", 20)
		if err := w.closeWindow(t.Context(), window{"w1", "aurora", "s1", nil}); err != nil {
			t.Fatal(err)
		}
		w.waitUntilQuiet()
		dead := w.texts(`SELECT event_id FROM dead_letter_consumers WHERE consumer_name = 'statistics' AND reason_code = 'WINDOW_EMPTY'`)
		if len(dead) != 1 {
			t.Fatalf("got the dead letters %v, want one", dead)
		}
		w.exec(`UPDATE dead_letter_events SET payload = replace(payload, '"watt_hours":null', '"watt_hours":[500]')`)
		w.replay(dead[0])
		if err := w.audit().err(); err != nil {
			t.Error(err)
		}
		w.checkChain("w1", "")
	})
}

// The context's correlation ID, where there is one, is that of the whole chain.
func TestCorrelation(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address, testConfig())
		w.setTariff("aurora", "s1", 20)
		id := w.closes(eventing.WithCorrelationID(t.Context(), "reading-7"), "aurora", "s1")
		w.waitUntilQuiet()
		w.checkChain(id, "reading-7")
	})
}

// checkChain checks the events that a window led to: of one station and one
// correlation, each caused by the one before, each processed by its consumer.
func (w world) checkChain(windowID, correlation string) {
	w.Helper()
	var chain []eventing.Envelope
	seen := map[string]bool{}
	for _, payload := range w.texts(`SELECT payload FROM event_outbox WHERE payload LIKE $1 ORDER BY seq`, "%"+windowID+"%") {
		e, err := eventing.DecodeEnvelope([]byte(payload))
		if err != nil {
			w.Fatal(err)
		}
		if !seen[e.ID] { // a replay has a row of its own
			chain, seen[e.ID] = append(chain, e), true
		}
	}
	steps := []struct{ event, consumer string }{
		{"TelemetryWindowClosed", statisticsConsumer}, {"StatisticCalculated", settlementConsumer}, {"SettlementCalculated", billingConsumer},
	}
	if len(chain) != len(steps) {
		w.Fatalf("window %s led to %d events, want %d", windowID, len(chain), len(steps))
	}
	if correlation == "" {
		correlation = chain[0].ID
	}
	cause := ""
	for i, e := range chain {
		if e.Type != steps[i].event || e.CorrelationID != correlation || e.CausationID != cause || e.SchemaVersion != 1 ||
			e.TenantID != chain[0].TenantID || e.StationID != chain[0].StationID || e.TenantID == "" || e.StationID == "" {
			w.Errorf("window %s: event %d is %+v, want a %s of correlation %q caused by %q, of the window's station", windowID, i, e.Header, steps[i].event, correlation, cause)
		}
		if got := w.texts(`SELECT consumer_name FROM processed_events WHERE event_id = $1`, e.ID); !slices.Equal(got, []string{steps[i].consumer}) {
			w.Errorf("window %s: its %s was processed by %v, want %s", windowID, e.Type, got, steps[i].consumer)
		}
		cause = e.ID
	}
}

// letter is a row of dead_letter_events.
type letter struct {
	eventType, error string
	envelope         eventing.Envelope
	first, last      sqlstore.Timestamp
	attempts         int
}

// deadLetter returns the event's row.
func (w world) deadLetter(eventID string) (l letter) {
	w.Helper()
	var payload string
	if err := w.db.read.QueryRowContext(w.Context(), `SELECT event_type, payload, error, first_seen_at, last_seen_at, attempts
		FROM dead_letter_events WHERE event_id = $1`, eventID).Scan(&l.eventType, &payload, &l.error, &l.first, &l.last, &l.attempts); err != nil {
		w.Fatal(err)
	}
	var err error
	if l.envelope, err = eventing.DecodeEnvelope([]byte(payload)); err != nil {
		w.Fatal(err)
	}
	return l
}

// statuses are those of an event's outbox rows, in their order.
func (w world) statuses(eventID string) []string {
	w.Helper()
	return w.texts(`SELECT status FROM event_outbox WHERE event_id = $1 ORDER BY seq`, eventID)
}

// The statement that the demonstration runs is the documented one.
func TestReplayIsTheDocumentedStatement(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/schema.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```sql\n"+replaySQL+"\n```") {
		t.Errorf("docs/schema.md does not have this statement:\n%s", replaySQL)
	}
	if got, want := shown(replayOne, "it"), strings.Replace(replaySQL, "'...'", "'it'", 1); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestArithmetic(t *testing.T) {
	t.Parallel()
	got, err := statisticOf(TelemetryWindowClosed{WindowID: "w", ClosedAt: time.Now(), WattHours: []int64{300, 100, 500, 101}})
	if want := (StatisticCalculated{WindowID: "w", Count: 4, Min: 100, Max: 500, Total: 1001, Average: 250.25}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for wh, want := range map[int64]int64{0: 0, 49: 1, 16: 0, 17: 1, 1000: 30} { // at 30 ct
		if got := cents(wh, 30); got != want {
			t.Errorf("%d Wh at 30 ct are %d ct, want %d", wh, got, want)
		}
	}
}
