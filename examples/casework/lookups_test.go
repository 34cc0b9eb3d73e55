package main

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A lookup that fails is followed by what routes.yaml says of it, and forgotten once it is back.
func TestLookupFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		where string
		fault fault
		times int
		want  []string
	}{
		{"lookup case", failing(errOutage), 2, []string{"approval citizen email sent 0", "approval citizen portal sent 0", "approval citizen sms sent 0", "approval local_office internal sent 0"}},
		{"lookup case", hang, 2, []string{"approval citizen email sent 0", "approval citizen portal sent 0", "approval citizen sms sent 0", "approval local_office internal sent 0"}},
		{"lookup citizen", failing(errOutage), 1, []string{"approval citizen email sent 0", "approval citizen portal sent 0"}}, // no SMS, and no district
		{"lookup citizen", hang, 1, []string{"approval citizen email sent 0", "approval citizen portal sent 0"}},
		{"lookup office", hang, 1, []string{"approval citizen email sent 0", "approval citizen portal sent 0", "approval citizen sms sent 0"}},
		{"lookup user", failing(errOutage), 1, []string{"approval citizen email sent 0", "approval citizen portal sent 0", "approval citizen sms sent 0", "approval local_office internal sent 0"}},
	} {
		t.Run(c.where, func(t *testing.T) {
			t.Parallel()
			w := start(t, t.TempDir()+"/casework.db")
			l, next := w.newLife(), w.newLife()
			for _, one := range []*life{l, next} {
				one.citizen.district = one.office.district
				w.turn("lookup case", nil)
				w.do(one, apply, upload, assign, wizard, verify, evaluate("ELIGIBLE"))
			}
			w.settle()
			w.exec(`DELETE FROM notifications`)
			approve := change(stateUnderReview, stateApproved, "means_test", (*life).handler)
			w.clock.skip(24 * 60 * 60e9) // what is cached is forgotten
			w.turn(c.where, flapping(map[string]int{l.caseID: c.times, l.citizen.id: c.times, l.office.id: c.times, l.handler().UserID: c.times}, c.fault))
			w.done(l, approve)
			if got := w.lettersOf(l); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			w.clock.skip(24 * 60 * 60e9)
			w.turn(c.where, nil)
			w.done(next, approve)
			if got, want := w.lettersOf(next), []string{"approval citizen email sent 0", "approval citizen portal sent 0", "approval citizen sms sent 0", "approval local_office internal sent 0"}; !slices.Equal(got, want) {
				t.Errorf("once it is back: got %q, want %q", got, want)
			}
			w.clean()
		})
	}
}

// A lookup that hangs holds up the consumer that needs it, and no other.
func TestSlowLookup(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		w.turn("lookup case", hang)
		const cases = 20
		for range cases {
			w.do(w.newLife(), apply)
		}
		for _, consumer := range []string{auditLog, workflowEngine, fraudEngine} {
			w.eventually(cases, `SELECT count(*) FROM processed_events p JOIN event_outbox o ON o.event_id = p.event_id
				WHERE o.event_type = 'case_created' AND p.consumer_name = $1`, consumer)
		}
		if n := w.count(`SELECT count(*) FROM processed_events WHERE consumer_name = $1`, notificationEngine); n != 0 {
			t.Errorf("%d events were processed without the answer", n)
		}
		w.turn("lookup case", nil)
		w.settle()
		w.clean()
	})
}

// The upcaster adds the central office, and changes nothing else, known to it or not.
func TestUpcast(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to string }{
		{`{"case_id": "c", "created_by": {"role": "citizen"}, "new": [1.50]}`, `{"case_id": "c", "created_by": {"role": "citizen"}, "new": [1.50], "intake_office_id": "` + centralOffice + `"}`},
		{`{"intake_office_id": "elsewhere"}`, `{"intake_office_id": "elsewhere"}`},
	} {
		got, err := addCentralOffice(json.RawMessage(c.from))
		if err != nil {
			t.Fatal(err)
		}
		if g, w := decoded[map[string]any](t, string(got)), decoded[map[string]any](t, c.to); !reflect.DeepEqual(g, w) {
			t.Errorf("%s became %s, want %s", c.from, got, c.to)
		}
	}
	if _, err := addCentralOffice(json.RawMessage(`[]`)); err == nil {
		t.Error("a list was brought to version 2")
	}
}

// An event of version 1 is handled as one of version 2, and logged as it came.
func TestVersion1(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir()+"/casework.db")
	l := w.newLife()
	l.version1 = true
	w.done(l, apply)
	w.stands(l, stateIntake)
	if n := len(w.lettersOf(l)); n != 2 {
		t.Errorf("there are %d letters, want 2", n)
	}
	if got := w.texts(`SELECT CAST(payload AS text) FROM events WHERE event_type = 'case_created'`); len(got) != 1 || strings.Contains(got[0], "intake_office_id") {
		t.Errorf("the log has %s, want it as it came", got)
	}
	w.clean()
}
