package eventing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// morgue is a store with dead letters.
type morgue struct {
	store   *memstore.Store
	letters *eventing.DeadLetters
	died    time.Time
}

func newMorgue() *morgue {
	s := memstore.New()
	return &morgue{s, eventing.NewDeadLetters(s), time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)}
}

// die lets an event die at a consumer, a second after the last one.
func (m *morgue) die(t *testing.T, id, consumer, key string, payload string) eventing.Target {
	t.Helper()
	e := eventing.New("order", key, json.RawMessage(payload))
	e.ID, e.Type, e.OccurredAt, e.CorrelationID, e.SchemaVersion = id, "order.placed", m.died, "c", 1
	text, err := eventing.EncodeEnvelope(e)
	if err != nil {
		t.Fatal(err)
	}
	m.died = m.died.Add(time.Second)
	m.fail(t, eventing.Run{Delivery: eventing.Delivery{Consumer: consumer, EventID: id, EventType: e.Type, Payload: text}})
	return eventing.Target{EventID: id, Consumer: consumer}
}

// fail lets a run be the last one.
func (m *morgue) fail(t *testing.T, r eventing.Run) {
	t.Helper()
	attempt := eventing.Attempt{Attempt: r.Attempts + 1, At: m.died, Outcome: "failed", ErrorCode: eventing.ReasonTimeout, ErrorMessage: "no answer within 30s"}
	if err := m.store.Fail(t.Context(), eventing.Failure{
		Run: r, Now: m.died, State: eventing.StateDead, Attempts: r.Attempts + 1, History: append(slices.Clone(r.History), attempt),
		Stage: eventing.StageHandle, Reason: eventing.ReasonTimeout, Message: attempt.ErrorMessage, DeadLetterUntil: m.died.Add(90 * 24 * time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
}

// again runs what was replayed: it fails once more, or succeeds.
func (m *morgue) again(t *testing.T, target eventing.Target, succeeds bool) {
	t.Helper()
	dl := m.letter(t, target)
	d := eventing.Delivery{Consumer: target.Consumer, EventID: target.EventID, EventType: dl.EventType, Generation: dl.Generation, Payload: dl.Payload}
	decision, run, err := m.store.Arrive(t.Context(), d, nil, m.died)
	if err != nil || decision != eventing.DecideRun {
		t.Fatalf("arrival of %s: %s, %v", target, decision, err)
	}
	if !succeeds {
		m.fail(t, run)
		return
	}
	if err := m.store.Succeed(t.Context(), eventing.Success{Run: run, Now: m.died, InboxUntil: m.died.Add(time.Hour), DeadLetterUntil: m.died.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
}

func (m *morgue) letter(t *testing.T, target eventing.Target) eventing.DeadLetter {
	t.Helper()
	found, err := m.letters.List(t.Context(), eventing.DeadLetterFilter{EventID: target.EventID, Consumer: target.Consumer})
	if err != nil || len(found) != 1 {
		t.Fatalf("dead letters of %s: %v, %v", target, found, err)
	}
	return found[0]
}

func (m *morgue) plan(t *testing.T, cfg eventing.PlanConfig) (*eventing.Plan, eventing.PlanReport) {
	t.Helper()
	cfg.By = "anna"
	cfg.Sources = []eventing.PlanSource{{Store: "a", Letters: m.letters}}
	plan, report, err := eventing.MakePlan(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return reread(t, plan), report
}

// reread returns a plan as its file has it.
func reread(t *testing.T, plan eventing.Plan) *eventing.Plan {
	t.Helper()
	var file bytes.Buffer
	if err := plan.Write(&file); err != nil {
		t.Fatal(err)
	}
	read, err := eventing.ReadPlan(&file)
	if err != nil {
		t.Fatalf("%v: %s", err, file.String())
	}
	return read
}

func (m *morgue) apply(t *testing.T, plan *eventing.Plan) eventing.Applied {
	t.Helper()
	done, err := plan.Apply(t.Context(), eventing.ApplyConfig{Stores: map[string]*eventing.DeadLetters{"a": m.letters}, By: "bob", Note: "fixed"})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func reasons(skips []eventing.Skip) (list []string) {
	for _, s := range skips {
		list = append(list, fmt.Sprintf("%d %s", s.Count, s.Reason))
	}
	slices.Sort(list)
	return list
}

func targets(plan *eventing.Plan) (list []string) {
	for _, s := range plan.Stores {
		for _, t := range s.Targets {
			list = append(list, t.Target().String())
		}
	}
	return list
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPlanLeavesOutWhatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	m := newMorgue()
	ctx := t.Context()
	m.die(t, "pending", "billing", "1", `{}`)
	reviewed := m.die(t, "reviewed", "billing", "1", `{}`)
	replayed := m.die(t, "replayed", "billing", "1", `{}`)
	scheduled := m.die(t, "scheduled", "billing", "1", `{}`)
	resolved := m.die(t, "resolved", "billing", "1", `{}`)
	discarded := m.die(t, "discarded", "billing", "1", `{}`)
	expired := m.die(t, "expired", "billing", "1", `{}`)
	must(t, m.letters.Review(ctx, reviewed, "anna", ""))
	must(t, m.letters.Replay(ctx, replayed, "anna", ""))
	must(t, m.letters.Schedule(ctx, scheduled, time.Now().Add(time.Hour), "anna", ""))
	must(t, m.letters.Replay(ctx, resolved, "anna", ""))
	m.again(t, resolved, true)
	must(t, m.letters.Discard(ctx, discarded, "anna", "a test"))
	must(t, m.letters.Discard(ctx, expired, "pruner", string(eventing.ReasonExpired)))
	id, wrapped := eventing.Undecodable([]byte("\xff"))
	must(t, m.store.Quarantine(ctx, eventing.Failure{
		Run: eventing.Run{Delivery: eventing.Delivery{EventID: id, Payload: wrapped}}, Now: m.died, State: eventing.StateDead, Attempts: 1,
		Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, DeadLetterUntil: m.died.Add(time.Hour),
	}))

	plan, report := m.plan(t, eventing.PlanConfig{})
	if got, want := targets(plan), []string{"pending at billing", "reviewed at billing"}; !slices.Equal(got, want) {
		t.Errorf("targets %q, want %q", got, want)
	}
	if got, want := reasons(report.Skipped), []string{
		"1 closed: discarded", "1 closed: expired", "1 closed: resolved", "1 replayed already: on its way", "1 scheduled: replays by itself",
		"1 undecodable: no consumer can be told from it",
	}; !slices.Equal(got, want) {
		t.Errorf("left out %q, want %q", got, want)
	}
	if len(report.Counts) != 1 || report.Counts[0] != (eventing.PlanCount{EventType: "order.placed", Consumer: "billing", Targets: 2}) {
		t.Errorf("counts: %+v", report.Counts)
	}
	if len(report.Groups) != 1 || report.Groups[0].Count != 2 || report.Groups[0].Error != "no answer within <n>" {
		t.Errorf("groups: %+v", report.Groups)
	}

	forced, report := m.plan(t, eventing.PlanConfig{Force: true, Selection: eventing.Selection{Status: eventing.StatusClosed}})
	if got := targets(forced); !slices.Equal(got, []string{"resolved at billing"}) || report.Counts[0].Forced != 1 {
		t.Errorf("by force: %q, %+v", got, report)
	}
	if done := m.apply(t, forced); done.Replayed != 1 {
		t.Errorf("by force: %+v", done)
	}
	if dl := m.letter(t, resolved); dl.Generation != 2 || dl.Acts[len(dl.Acts)-1].Plan != forced.ID {
		t.Errorf("after the force: %+v", dl)
	}
}

func TestPlanSelects(t *testing.T) {
	t.Parallel()
	m := newMorgue()
	since := m.died
	m.die(t, "e1", "billing", "1", `{"amount":50}`)
	m.die(t, "e2", "billing", "2", `{"amount":150}`)
	until := m.died
	m.die(t, "e3", "search", "2", `{"amount":250}`)
	m.die(t, "e4", "mail", "1", `{}`)
	fails := errors.New("no amount")
	for name, test := range map[string]struct {
		selection eventing.Selection
		want      string
	}{
		"all":       {eventing.Selection{}, "e1 e2 e3 e4"},
		"consumer":  {eventing.Selection{Consumers: []string{"search"}}, "e3"},
		"consumers": {eventing.Selection{Consumers: []string{"mail", "search"}}, "e3 e4"},
		"key":       {eventing.Selection{OrderingKey: "order/2"}, "e2 e3"},
		"times":     {eventing.Selection{Since: since.Add(2 * time.Second), Until: until.Add(time.Second)}, "e2"},
		"type":      {eventing.Selection{EventType: "order.gone"}, ""},
		"error":     {eventing.Selection{Error: "no answer within <n>", Reason: eventing.ReasonTimeout, Limit: 2}, "e1 e2"},
		"other":     {eventing.Selection{Error: "refused"}, ""},
		"match": {eventing.Selection{Matches: func(dl eventing.DeadLetter) (bool, error) {
			if !bytes.Contains(dl.Payload, []byte("amount")) {
				return false, fails
			}
			return bytes.Contains(dl.Payload, []byte("150")), nil
		}}, "e2"},
	} {
		plan, report := m.plan(t, eventing.PlanConfig{Selection: test.selection})
		var got []string
		for _, target := range plan.Stores[0].Targets {
			got = append(got, target.EventID)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if name == "match" && !slices.Equal(reasons(report.Skipped), []string{"1 the match fails: no amount"}) {
			t.Errorf("left out: %+v", report.Skipped)
		}
		if name == "error" && !report.Truncated {
			t.Error("the report does not say that there are more")
		}
	}
	if err := m.letters.Select(t.Context(), eventing.Selection{Matches: func(eventing.DeadLetter) (bool, error) { return false, fails }}, nil); !errors.Is(err, fails) {
		t.Errorf("error %v, want that of the match", err)
	}
}

// What waits behind two targets of one key is counted once.
func TestPlanCountsWhatIsParked(t *testing.T) {
	t.Parallel()
	m := newMorgue()
	lease, err := m.store.AcquireLeases(t.Context(), eventing.LeaseRequest{
		Scope: "ledger", Holder: "h", Now: m.died, Until: m.died.Add(time.Hour), Partitions: []int{0},
	})
	must(t, err)
	deliver := func(id string) (eventing.Decision, eventing.Run) {
		d := eventing.Delivery{Consumer: "ledger", EventID: id, EventType: "order.placed", OrderingKey: "order/1", Payload: []byte(`{}`)}
		decision, run, err := m.store.Arrive(t.Context(), d, &lease.Held[0], m.died)
		must(t, err)
		return decision, run
	}
	_, run := deliver("e1")
	run.Lease = &lease.Held[0]
	m.fail(t, run)
	for _, id := range []string{"e2", "e3"} {
		if decision, _ := deliver(id); decision != eventing.DecidePark {
			t.Fatalf("%s: %s", id, decision)
		}
	}
	if _, report := m.plan(t, eventing.PlanConfig{}); report.Targets != 1 || report.Parked != 2 || report.Counts[0].Parked != 2 {
		t.Errorf("report: %+v", report)
	}
}

// What a plan has replayed it never replays again, whatever became of it.
func TestApplyAgain(t *testing.T) {
	t.Parallel()
	m := newMorgue()
	var all []eventing.Target
	for i := range 6 {
		all = append(all, m.die(t, fmt.Sprintf("e%d", i), "billing", "1", `{}`))
	}
	plan, _ := m.plan(t, eventing.PlanConfig{})
	must(t, m.letters.Discard(t.Context(), all[4], "carl", "a test"))
	must(t, m.letters.Replay(t.Context(), all[5], "carl", ""))
	m.again(t, all[5], false)

	ctx, cancel := context.WithCancel(t.Context())
	first, err := plan.Apply(ctx, eventing.ApplyConfig{
		Stores: map[string]*eventing.DeadLetters{"a": m.letters}, By: "bob", Progress: func(done eventing.Applied) {
			if done.Replayed == 3 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || first.Replayed != 3 || first.Left != 3 {
		t.Fatalf("interrupted: %+v, %v", first, err)
	}
	m.again(t, all[0], true)
	m.again(t, all[1], false)
	second := m.apply(t, plan)
	if second.Replayed != 1 || second.Before != 3 || second.Skipped != 2 || second.Left != 0 || !slices.Equal(reasons(second.Skips), []string{
		"1 changed since the plan: now closed: discarded", "1 changed since the plan: replayed meanwhile, and failed again",
	}) {
		t.Errorf("again: %+v", second)
	}
	if third := m.apply(t, plan); third.Replayed != 0 || third.Before != 4 || third.Skipped != 2 {
		t.Errorf("a third time: %+v", third)
	}
	for i, want := range []eventing.ReviewStatus{eventing.StatusClosed, eventing.StatusPending, eventing.StatusReplayed, eventing.StatusReplayed} {
		dl := m.letter(t, all[i])
		if dl.Status != want || dl.Generation != 1 || len(dl.Acts) != 1 || dl.Acts[0].By != "bob" || dl.Acts[0].Plan != plan.ID {
			t.Errorf("%s: %s, generation %d, acts %+v; want %s, 1 and one act", all[i], dl.Status, dl.Generation, dl.Acts, want)
		}
	}
	if dl := m.letter(t, all[1]); dl.AttemptCount != 2 || len(dl.History) != 2 {
		t.Errorf("what failed again has lost its history: %+v", dl)
	}
}

func TestApplyKeepsItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newMorgue()
		for i := range 200 {
			m.die(t, fmt.Sprintf("e%d", i), "billing", "1", `{}`)
		}
		plan, _ := m.plan(t, eventing.PlanConfig{})
		began := time.Now()
		if _, err := plan.Apply(t.Context(), eventing.ApplyConfig{Stores: map[string]*eventing.DeadLetters{"a": m.letters}, By: "bob", Rate: 40}); err != nil {
			t.Fatal(err)
		}
		if took, want := time.Since(began), 199*time.Second/40; took != want {
			t.Errorf("200 at 40 per second took %s, want %s", took, want)
		}
	})
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	m := newMorgue()
	m.die(t, "e1", "billing", "1", `{}`)
	plan, _ := m.plan(t, eventing.PlanConfig{})
	stores := map[string]*eventing.DeadLetters{"a": m.letters}
	for want, cfg := range map[string]eventing.ApplyConfig{
		"for store a, which was not given": {By: "bob", Stores: map[string]*eventing.DeadLetters{"b": m.letters}},
		"say who":                          {Stores: stores},
		"the rate is -1":                   {By: "bob", Stores: stores, Rate: -1},
		"the rate is NaN":                  {By: "bob", Stores: stores, Rate: math.NaN()},
		"the rate is 1e-10":                {By: "bob", Stores: stores, Rate: 1e-10}, // one in 317 years
	} {
		if _, err := plan.Apply(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if dl := m.letter(t, eventing.Target{EventID: "e1", Consumer: "billing"}); dl.Generation != 0 {
		t.Errorf("it was replayed: %+v", dl)
	}
}

const planFile = `{"version":1,"id":"p","made_at":"2026-02-26T12:00:00Z","made_by":"anna","selection":{},"stores":[
{"store":"a","targets":[
{"event_id":"e1","consumer_name":"billing","event_type":"order.placed","generation":0}
]}]}
`

func TestReadPlan(t *testing.T) {
	t.Parallel()
	plan, err := eventing.ReadPlan(strings.NewReader(planFile))
	if err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := plan.Write(&again); err != nil || again.String() != planFile {
		t.Errorf("written: %v %s", err, again.String())
	}
	for name, test := range map[string]struct{ old, new, want string }{
		"version":  {`"version":1`, `"version":2`, "its version is 2"},
		"field":    {`"id":"p"`, `"id":"p","colour":"red"`, "unknown field"},
		"no id":    {`"id":"p"`, `"id":""`, "no id"},
		"more":     {"]}]}\n", "]}]}\n{}", "something follows"},
		"twice":    {"}\n]}]}", `},{"event_id":"e1","consumer_name":"billing","event_type":"","generation":1}]}]}`, "e1 at billing is there twice"},
		"stores":   {"]}]}", `]},{"store":"a","targets":[]}]}`, `store "a" is there twice`},
		"no event": {`"event_id":"e1"`, `"event_id":""`, "target 1 of store a is none"},
		"force":    {`"generation":0`, `"generation":0,"force":true`, "is to be forced, and the plan is not"},
		"cut":      {"]}]}", "", "unexpected EOF"},
	} {
		if _, err := eventing.ReadPlan(strings.NewReader(strings.Replace(planFile, test.old, test.new, 1))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
	if _, err := eventing.ReadPlan(strings.NewReader(strings.Repeat(" ", 64<<20+1))); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("too large: error %v", err)
	}
	for _, many := range []string{"{}", "null", "[]"} {
		hostile := strings.Replace(planFile, "]}]}", strings.Repeat(","+many, 2_000_000)+"]}]}", 1)
		_, err := eventing.ReadPlan(strings.NewReader(hostile))
		if err == nil || !strings.Contains(err.Error(), "more than 100 stores or 200000 targets") {
			t.Errorf("many targets: error %v", err)
		}
	}
}

// FuzzReadPlan: what is read can be written and read again.
func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(planFile))
	f.Add([]byte(strings.Replace(planFile, `"stores"`, `"force":true,"stores"`, 1)))
	f.Fuzz(func(t *testing.T, text []byte) {
		plan, err := eventing.ReadPlan(bytes.NewReader(text))
		if err != nil {
			return
		}
		if again := reread(t, *plan); again.Targets() != plan.Targets() || again.ID != plan.ID {
			t.Errorf("read %+v, again %+v", plan, again)
		}
	})
}
