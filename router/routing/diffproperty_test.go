package routing_test

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

// A diff of two files names exactly the deliveries that differ when both are run.
func TestDiffAndTheRunningSystemsAgree(t *testing.T) {
	t.Parallel()
	checkInBubble(t, func(t *rapid.T) {
		f := generateFile(t).mend()
		g := f.changed(t)
		before, after := f.compile(t), g.compile(t)
		l, events := generateLookups(t), generateEvents(t, f, 12)
		ran, first := run(t, f, before, l, events)
		runs, second := run(t, g, after, l, events)
		differ := routing.NewDiffer(before, after, l)
		for _, e := range events {
			uncompared := uncomparedBy(differ)
			changes := map[delivery]routing.Change{}
			for _, c := range differ.Event(t.Context(), e) {
				changes[delivery{e.ID, c.Consumer}] = c
			}
			checkTurnedRound(t, changes, routing.Diff(t.Context(), after, before, e, l))
			want := wantChanges(e, f, g, ran, runs, first.lanes, second.lanes)
			for key := range union(changes, want) {
				got := changes[key].Kind
				if got == want[key] {
					checkSides(t, changes[key], ran[key], runs[key])
					continue
				}
				unknown := uncomparedBy(differ)[delivery{e.Type, key.consumer}] > uncompared[delivery{e.Type, key.consumer}]
				if !unknown || got != "" {
					t.Errorf("%v: diff says %q, and it is %q:\n before %s in lane %q\n after %s in lane %q\n%s\n%s", key, got, want[key],
						ran[key], first.lanes[e.ID], runs[key], second.lanes[e.ID], f.text(), g.text())
				}
				if old := e.SchemaVersion == 1 && (severalVersions(f, e.Type) || severalVersions(g, e.Type)); !old {
					t.Errorf("%v could be compared", key)
				}
			}
		}
		checkReport(t, differ, len(events))
	})
}

func severalVersions(f *file, typ string) bool {
	return f.Events[typ] != nil && len(f.Events[typ].Schemas) > 1
}

func union[V, W any](a map[delivery]V, b map[delivery]W) map[delivery]bool {
	all := map[delivery]bool{}
	for key := range a {
		all[key] = true
	}
	for key := range b {
		all[key] = true
	}
	return all
}

// uncomparedBy counts what was not compared, by event type and consumer.
func uncomparedBy(d *routing.Differ) map[delivery]int {
	n := map[delivery]int{}
	for _, u := range d.Report().Uncompared {
		n[delivery{u.EventType, u.Consumer}] += u.Count
	}
	return n
}

// wantChanges compares what ran.
func wantChanges(e eventing.Envelope, f, g *file, ran, runs became, lanes, lanesAfter map[string]eventing.Lane) map[delivery]routing.ChangeKind {
	want := map[delivery]routing.ChangeKind{}
	for key := range union(ran, runs) {
		old, was := ran[key]
		now, is := runs[key]
		switch {
		case key.event != e.ID:
		case key.consumer == "" && !was:
			want[key] = routing.Unroutable
		case key.consumer == "" && !is:
			want[key] = routing.Routable
		case !was:
			want[key] = routing.Gained
		case !is:
			want[key] = routing.Lost
		case key.consumer != "" && (old != now || laneOf(f, key, lanes) != laneOf(g, key, lanesAfter)):
			want[key] = routing.Changed
		}
	}
	return want
}

// laneOf is the lane of a delivery.
func laneOf(f *file, key delivery, lanes map[string]eventing.Lane) eventing.Lane {
	if f.Consumers[key.consumer].Ordered {
		return ""
	}
	return lanes[key.event]
}

// checkSides checks what a change says of both sides, where it says something.
func checkSides(t *rapid.T, c routing.Change, ran, runs string) {
	for side, want := range map[*routing.Delivery]string{c.Old: ran, c.New: runs} {
		if side == nil || side.Actions == nil {
			continue
		}
		got := deadLetter + string(side.Reason)
		switch {
		case side.Error == "":
			var texts []json.RawMessage
			for _, a := range side.Actions {
				text, _ := json.Marshal(a) // what parameters are made of always encodes
				texts = append(texts, text)
			}
			got = actionsText(texts)
		case side.Reason == "":
			got = retried
		}
		if got != want {
			t.Errorf("diff says of %s at %s: %s, and it is %s", c.EventID, c.Consumer, got, want)
		}
	}
}

// checkReport checks that the counts add up.
func checkReport(t *rapid.T, d *routing.Differ, events int) {
	r := d.Report()
	for _, c := range r.Changes {
		if c.Count == 0 || len(c.Examples) != min(c.Count, 3) || c.Count > events {
			t.Errorf("%+v of %d events", c, events)
		}
	}
	if r.Events != events || r.Differing > events || (r.Differing == 0) != (len(r.Changes) == 0) {
		t.Errorf("%+v of %d events", r, events)
	}
}

// A diff of a file against itself is empty, even where it cannot be known what becomes of an event.
func TestDiffOfAFileAgainstItselfIsEmpty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := generateFile(t)
		differ := routing.NewDiffer(f.compile(t), f.compile(t), routing.Lookups{})
		for _, e := range generateEvents(t, f, 12) {
			if changes := differ.Event(t.Context(), e); len(changes) > 0 {
				t.Errorf("%+v\n%s", changes, f.text())
			}
		}
		if r := differ.Report(); !r.Same() {
			t.Errorf("%+v", r)
		}
	})
}

// opposite is what a change is when the files are turned round.
var opposite = map[routing.ChangeKind]routing.ChangeKind{
	routing.Gained: routing.Lost, routing.Lost: routing.Gained, routing.Changed: routing.Changed, routing.Routable: routing.Unroutable, routing.Unroutable: routing.Routable,
}

// checkTurnedRound checks that a diff says the opposite when the files are turned round.
func checkTurnedRound(t *rapid.T, there map[delivery]routing.Change, back []routing.Change) {
	if len(there) != len(back) {
		t.Errorf("%v there, %v back", there, back)
	}
	for _, c := range back {
		if kind := there[delivery{c.EventID, c.Consumer}].Kind; c.Kind != opposite[kind] {
			t.Errorf("%s at %s: %s there, %s back", c.EventID, c.Consumer, kind, c.Kind)
		}
	}
}
