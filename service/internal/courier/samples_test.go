package courier

import (
	"bytes"
	"os"
	"slices"
	"testing"
	"time"
)

// The samples must go on telling the stories that their README tells.
func TestSamples(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../examples/couriers/samples.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		status, event string
		at            time.Time
	}
	shipments := map[string]state{}
	ids := map[string]bool{}
	var late, invalid []string
	for line := range bytes.Lines(raw) {
		ev, payload, faults := Parse(line)
		if len(faults) > 0 {
			t.Fatalf("%s: the intake refuses it: %v", line, faults)
		}
		if id := EventID(ev.Source, ev.IdempotencyKey); ids[id] {
			t.Errorf("%s is there twice", ev.IdempotencyKey)
		} else {
			ids[id] = true
		}
		last := shipments[payload.ShipmentID]
		switch {
		case CheckStatus(payload.Status) != nil:
			invalid = append(invalid, ev.EventID)
			continue
		case ev.OccurredAt.Before(last.at):
			late = append(late, ev.EventID)
			continue
		case payload.Status == "":
			payload.Status = last.status
		}
		shipments[payload.ShipmentID] = state{payload.Status, ev.EventID, ev.OccurredAt}
	}
	if !slices.Equal(late, []string{"evt_122"}) || !slices.Equal(invalid, []string{"evt_141"}) || len(ids) != 13 {
		t.Errorf("late %v, invalid %v, %d events", late, invalid, len(ids))
	}
	for id, want := range map[string][2]string{
		"shp_456":     {"delivered", "evt_124"},
		"NP-00417-DE": {"Delivery Attempted (nobody home)", "evt_133"},
		"shp_457":     {"picked_up", "evt_140"},
		"shp_458":     {"in_transit", "evt_151"},
	} {
		if got := shipments[id]; got.status != want[0] || got.event != want[1] {
			t.Errorf("%s: got %+v, want %v", id, got, want)
		}
	}
}
