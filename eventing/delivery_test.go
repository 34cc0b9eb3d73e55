package eventing

import "testing"

// The arrival table of docs: what is found decides what is done.
func TestDecide(t *testing.T) {
	t.Parallel()
	fresh, replay := Delivery{}, Delivery{Generation: 2}
	for _, c := range []struct {
		name string
		d    Delivery
		f    Found
		want Decision
	}{
		{"nothing", fresh, Found{}, DecideRun},
		{"processed", fresh, Found{Processed: true}, DecideAck},
		{"processed, replayed", replay, Found{Processed: true}, DecideAck},
		{"processed beats a busy key", fresh, Found{Processed: true, KeyBusy: true, Ahead: true}, DecideAck},
		{"retrying", fresh, Found{State: StateRetrying}, DecideAck},
		{"retrying, replayed", replay, Found{State: StateRetrying, Generation: 2, Replayed: true}, DecideAck},
		{"parked", fresh, Found{State: StateParked, KeyBusy: true, Ahead: true}, DecideAck},
		{"parked, replayed", replay, Found{State: StateParked, Generation: 2, Replayed: true}, DecideAck},
		{"dead, the first message again", fresh, Found{State: StateDead}, DecideAck},
		{"dead, the first message after a replay", fresh, Found{State: StateDead, Generation: 2, Replayed: true}, DecideAck},
		{"dead, an older replay", Delivery{Generation: 1}, Found{State: StateDead, Generation: 2, Replayed: true}, DecideAck},
		{"dead, a replay of the future", Delivery{Generation: 3}, Found{State: StateDead, Generation: 2, Replayed: true}, DecideAck},
		{"dead, the replay that failed", replay, Found{State: StateDead, Generation: 2}, DecideAck},
		{"dead, the current replay", replay, Found{State: StateDead, Generation: 2, Replayed: true}, DecideRun},
		{"dead, the current replay, others parked behind", replay, Found{State: StateDead, Generation: 2, Replayed: true, KeyBusy: true}, DecideRun},
		{"dead, the current replay, out of turn", replay, Found{State: StateDead, Generation: 2, Replayed: true, KeyBusy: true, Ahead: true}, DecidePark},
		{"discarded", fresh, Found{Discarded: true}, DecideAck},
		{"discarded, replayed", replay, Found{Discarded: true}, DecideAck},
		{"discarded, a busy key", fresh, Found{Discarded: true, KeyBusy: true, Ahead: true}, DecideAck},
		{"a busy key", fresh, Found{KeyBusy: true, Ahead: true}, DecidePark},
		{"a busy key, a replay without a delivery", replay, Found{KeyBusy: true, Ahead: true}, DecidePark},
		{"a replay without a delivery", replay, Found{}, DecideRun},
	} {
		if got := Decide(c.d, c.f); got != c.want {
			t.Errorf("%s: want %s, got %s", c.name, c.want, got)
		}
	}
}
