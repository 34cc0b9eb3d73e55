package memstore_test

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// die records n failed attempts of a consumer, the last of them for good.
func die(t *testing.T, s *memstore.Store, d eventing.Delivery, n int, at time.Time) {
	t.Helper()
	decision, run, err := s.Arrive(t.Context(), d, nil, at)
	if err != nil || decision != eventing.DecideRun {
		t.Fatalf("%s at %s: %v, %v", d.EventID, d.Consumer, decision, err)
	}
	f := eventing.Failure{
		Run: run, Now: at, State: eventing.StateDead, Attempts: run.Attempts + n, History: run.History,
		Stage: eventing.StageHandle, Reason: eventing.ReasonRejected, Message: "no, said " + d.Consumer, DeadLetterUntil: at.Add(time.Hour),
	}
	for i := range n {
		f.History = append(f.History, eventing.Attempt{Attempt: run.Attempts + i + 1})
	}
	if err := s.Fail(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func TestADeadLetterEventSumsItsConsumersUp(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	billing := eventing.Delivery{Consumer: "billing", EventID: "e1", EventType: "placed", Payload: []byte("{}")}
	mail := billing
	mail.Consumer = "mail"
	die(t, s, billing, 3, start)
	die(t, s, mail, 1, start.Add(time.Minute))
	if err := s.Replay(t.Context(), eventing.Target{EventID: "e1", Consumer: "billing"}, eventing.AnyGeneration, eventing.Act{At: start}); err != nil {
		t.Fatal(err)
	}
	billing.Generation = 1
	die(t, s, billing, 2, start.Add(time.Hour)) // of five attempts, three are counted already

	e, ok := s.DeadLetterEvent("e1")
	if !ok || e.Attempts != 6 || e.Error != "no, said billing" || e.EventType != "placed" || string(e.Payload) != "{}" ||
		!e.FirstSeenAt.Equal(start) || !e.LastSeenAt.Equal(start.Add(time.Hour)) {
		t.Errorf("got %+v, %v; want 6 attempts from %v to an hour later", e, ok, start)
	}
	if _, ok := s.DeadLetterEvent("e2"); ok {
		t.Error("an event that did not die has a row")
	}
}

// The history of what died before it was a delivery goes on when its replay
// fails.
func TestAReplayOfUndecodableBytesContinuesTheirHistory(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	now := time.Now()
	id, payload := eventing.Undecodable([]byte("?"))
	d := eventing.Delivery{Consumer: "billing", EventID: id, Payload: payload}
	quarantine := eventing.Failure{
		Run: eventing.Run{Delivery: d}, Now: now, State: eventing.StateDead, Attempts: 1, History: []eventing.Attempt{{Attempt: 1}},
		Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, DeadLetterUntil: now.Add(time.Hour),
	}
	for range 2 { // the second time it is the broker's duplicate
		if err := s.Quarantine(t.Context(), quarantine); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Replay(t.Context(), eventing.Target{EventID: id, Consumer: "billing"}, eventing.AnyGeneration, eventing.Act{At: now}); err != nil {
		t.Fatal(err)
	}
	d.Generation = 1
	die(t, s, d, 1, now)
	found, err := s.DeadLetters(t.Context(), eventing.DeadLetterFilter{EventID: id})
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v", found, err)
	}
	dl := found[0]
	if dl.AttemptCount != 2 || len(dl.History) != 2 || dl.History[1].Attempt != 2 || dl.Status != eventing.StatusPending {
		t.Errorf("got %d attempts, history %v, %s; want 2, numbered on, pending", dl.AttemptCount, dl.History, dl.Status)
	}
	if e, _ := s.DeadLetterEvent(id); e.Attempts != 2 {
		t.Errorf("the event has %d attempts, want 2", e.Attempts)
	}
}

// Two events of a key that both could not be published must not wait for each
// other's replay.
func TestHeldEventsDoNotBlockEachOthersReplay(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	o := outboxOf(s)
	ctx, now := t.Context(), time.Now()
	if err := o.InTx(ctx, func(tx *memstore.Tx) error {
		return o.Append(ctx, tx, event("e1", "o1"), event("e2", "o1"), event("e3", "o1"))
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AcquireLeases(ctx, eventing.LeaseRequest{Scope: eventing.DispatchScope, Holder: "a", Now: now, Until: now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"e1", "e2"} { // claimed together
		if err := s.FailDispatch(ctx, eventing.DispatchFailure{
			Row: eventing.OutboxRow{ID: id}, Holder: "a", Reason: eventing.ReasonUnpublishable, HoldKey: true, Now: now,
		}); err != nil {
			t.Fatal(err)
		}
	}
	equalStrings(t, "claimed while both are open", claim(t, s))
	for _, id := range []string{"e1", "e2"} {
		if err := s.Replay(ctx, eventing.Target{EventID: id}, eventing.AnyGeneration, eventing.Act{At: now}); err != nil {
			t.Fatal(err)
		}
	}
	equalStrings(t, "claimed after both are replayed", claim(t, s), "e1", "e2")
}

func TestARowIDIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	if err := s.InsertByHand(t.Context(), "r1", "e1", "placed", "{}"); err != nil {
		t.Fatal(err)
	}
	if err := s.InsertByHand(t.Context(), "r1", "e2", "placed", "{}"); err == nil {
		t.Error("a second row with the same ID was inserted")
	}
	equalStrings(t, "claimed before adoption", claim(t, s))
}
