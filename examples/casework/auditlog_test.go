package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// Every event is in the log with who did it, in what trace, and the hash of the address; read in the order of time, also what was logged late.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.turn("audit log", flapping(map[string]int{l.caseID: 2}, failing(errOutage)))
		ctx := eventing.WithTraceContext(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
		for _, a := range []act{apply, upload, assign} {
			if err := w.act(ctx, l, a); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		var types []string
		last, late := time.Time{}, 0
		for e, err := range w.log.Each(t.Context(), w.db.read, eventlog.Filter{AggregateType: caseAggregate, AggregateID: l.caseID}) {
			if err != nil {
				t.Fatal(err)
			}
			if e.OccurredAt.Before(last) || e.AggregateID != l.caseID {
				t.Errorf("%s of %s comes after %s", e.Type, e.OccurredAt, last)
			}
			last, late = e.OccurredAt, late+e.RetryCount
			if e.Metadata["trace_id"] != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("%s: got the metadata %v, want the trace", e.Type, e.Metadata)
			}
			by := map[string]actor{"document_uploaded": l.applicant(), "case_assigned": l.supervisor(), "notification_sent": systemActor}[e.Type]
			if by.UserID != "" && (e.Metadata["actor_id"] != by.UserID || e.Metadata["actor_role"] != by.Role || by.IPHash != "" && e.Metadata["ip_hash"] != by.IPHash) {
				t.Errorf("%s: got the metadata %v, want %+v", e.Type, e.Metadata, by)
			}
			types = append(types, e.Type)
		}
		slices.Sort(types)
		if want := "case_assigned case_created document_uploaded document_uploaded notification_sent notification_sent notification_sent"; strings.Join(types, " ") != want || late != 2 {
			t.Errorf("got %s, logged after %d failures, want %s after 2", types, late, want)
		}
		w.clean()
	})
}

// Each category is kept for as long as the routing file says.
func TestRetention(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		ended, alive := w.newLife(), w.newLife()
		w.done(ended, lookUpCitizen(true), apply, upload, assign, wizard, refuse, replace, verify, evaluate("INELIGIBLE"), finish("It is over."))
		w.done(alive, apply, calculate)
		if err := w.collectReports(t.Context(), w.clock.now()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		kept := func(now time.Time) []string {
			t.Helper()
			p, err := eventing.NewPruner(w.db.events, eventing.PrunerConfig{
				SentRetention: 100 * 365 * 24 * time.Hour, Now: func() time.Time { return now },
				Also: map[string]eventing.PruneFunc{"events": w.log.Pruner(w.db.write)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.PruneOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for kind, query := range map[string]string{
				"notification": `event_type LIKE 'notification%'`, "integration": `event_type LIKE 'bis%'`, "audit": `event_type LIKE 'fraud%'`, "payment": `event_type LIKE 'payment%'`,
				"ended": `event_type IN ('case_created', 'document_uploaded', 'case_closed') AND CAST(aggregate_id AS text) = '` + ended.caseID + `'`,
				"alive": `event_type IN ('case_created', 'document_uploaded', 'case_closed') AND CAST(aggregate_id AS text) = '` + alive.caseID + `'`,
			} {
				if w.count(`SELECT count(*) FROM events WHERE `+query) > 0 {
					kinds = append(kinds, kind)
				}
			}
			slices.Sort(kinds)
			return kinds
		}
		for _, c := range []struct {
			years, days int
			want        string
		}{
			{0, 0, "alive audit ended integration notification payment"},
			{0, 91, "alive audit ended notification payment"},
			{1, 1, "alive audit ended payment"},
			{4, 364, "alive audit ended payment"},
			{5, 1, "alive audit payment"},
			{7, 1, "alive"},
		} {
			if got := strings.Join(kept(w.clock.now().AddDate(c.years, 0, c.days)), " "); got != c.want {
				t.Errorf("after %d years and %d days there is %s, want %s", c.years, c.days, got, c.want)
			}
		}
	})
}
