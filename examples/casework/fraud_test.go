package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// signals are the types of a case's signals, and its score and level.
func (w world) risk(l *life) (signals []string, risk string) {
	w.Helper()
	signals = w.texts(`SELECT signal_type FROM fraud_signals WHERE case_id = $1 ORDER BY signal_type`, l.caseID)
	for _, text := range w.texts(`SELECT score || ' ' || risk_level FROM risk_profiles WHERE case_id = $1`, l.caseID) {
		risk = text
	}
	return signals, risk
}

// A case that is like others in all that the engine looks at is of high risk: one alert, which holds it. Doing it all again adds
// nothing.
func TestFraudAlert(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		earlier, neighbour, l := w.newLife(), w.newLife(), w.newLife()
		neighbour.citizen.address = earlier.citizen.address
		w.done(neighbour, apply)
		w.done(earlier, apply, upload)
		w.clock.skip(48 * time.Hour)
		l.copy(earlier, neighbour)
		w.done(l, apply, upload)
		signals, risk := w.risk(l)
		if want := []string{"DOCUMENT_REUSED", "DUPLICATE_ADDRESS", "RAPID_REAPPLICATION"}; !slices.Equal(signals, want) || risk != "78 HIGH" {
			t.Errorf("got %q and %s, want %q and 78 HIGH", signals, risk, want)
		}
		if _, risk := w.risk(neighbour); risk == "78 HIGH" {
			t.Errorf("the neighbour is of risk %s", risk)
		}
		w.stands(l, stateOnHold)
		alerts := w.texts(`SELECT CAST(payload AS text) FROM events WHERE event_type = 'fraud_alert_triggered'`)
		if len(alerts) != 1 {
			t.Fatalf("there are %d alerts, want 1", len(alerts))
		}
		a := decoded[fraudAlertTriggered](t, alerts[0])
		if a.CaseID != l.caseID || a.RiskScore != 78 || a.RiskLevel != levelHigh || len(a.SignalsDetected) != 3 || a.SignalsDetected[0] != (weighedSignal{"DUPLICATE_ADDRESS", levelHigh, 30}) {
			t.Errorf("got the alert %+v", a)
		}
		if n := w.count(`SELECT count(*) FROM notifications WHERE notification = 'fraud_alert' AND priority = 'immediate'`); n != 2 {
			t.Errorf("%d officers were told, want 2", n)
		}

		// From now on, the fraud officer hears of all that the citizen does.
		w.clock.skip(time.Minute)
		w.done(l, assign)
		if n := w.count(`SELECT count(*) FROM notifications WHERE notification = 'assignment' AND recipient = 'fraud_officer'`); n != 1 {
			t.Errorf("%d fraud officers were told of the assignment, want 1", n)
		}

		forced := 0
		for _, id := range w.texts(`SELECT event_id FROM processed_events WHERE consumer_name = $1`, fraudEngine) {
			if err := eventing.NewDeadLetters(w.db.events, eventing.WithClock(w.clock.now)).Force(t.Context(), eventing.Target{EventID: id, Consumer: fraudEngine}, operatorName, "again"); err != nil {
				t.Fatal(err)
			}
			forced++
		}
		w.settle()
		if again, risk := w.risk(l); forced < 4 || !slices.Equal(again, signals) || risk != "78 HIGH" || w.told(l, "fraud_alert_triggered") != 1 {
			t.Errorf("after %d events were handled again, there are %q and %s", forced, again, risk)
		}
		w.clean()
	})
}

// What nobody can judge at any attempt counts as of medium risk, and the score is told. The dead letter is for somebody to see.
func TestDefaultIsMedium(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.turn("watch list", failing(errOutage))
		w.done(l, apply)
		w.turn("watch list", nil)
		if signals, risk := w.risk(l); !slices.Equal(signals, []string{"NOT_ASSESSED"}) || risk != "40 MEDIUM" {
			t.Errorf("got %q and %s, want NOT_ASSESSED and 40 MEDIUM", signals, risk)
		}
		if c := w.tally.consumers[fraudEngine]; c.instead != 1 || c.failed != 6 || w.told(l, "fraud_score_updated") != 1 {
			t.Errorf("the tally has %+v", c)
		}
		w.accepted(fraudEngine)
		w.clean()
	})
}

// A replay that succeeds takes the place of what was assumed; one that fails again does not.
func TestAssumptionWithdrawn(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		neighbour, l := w.newLife(), w.newLife()
		l.citizen.address = neighbour.citizen.address
		w.done(neighbour, apply)
		w.turn("watch list", failing(errOutage))
		w.done(l, apply, upload, refuse)
		replay := func(wantSignals []string, wantRisk string) {
			t.Helper()
			letters, err := eventing.NewDeadLetters(w.db.events, eventing.WithClock(w.clock.now)).List(t.Context(), eventing.DeadLetterFilter{Consumer: fraudEngine, OpenOnly: true})
			if err != nil || len(letters) != 1 {
				t.Fatalf("there are %d dead letters, %v, want 1", len(letters), err)
			}
			if err := newOperator(w.system, w.clock).letters.Replay(t.Context(), letters[0].Target(), operatorName, "the watch list is back"); err != nil {
				t.Fatal(err)
			}
			w.settle()
			if signals, risk := w.risk(l); !slices.Equal(signals, wantSignals) || risk != wantRisk {
				t.Errorf("got %q and %s, want %q and %s", signals, risk, wantSignals, wantRisk)
			}
		}
		replay([]string{"DOCUMENT_REJECTED", "NOT_ASSESSED"}, "50 MEDIUM")
		w.turn("watch list", nil)
		replay([]string{"DOCUMENT_REJECTED", "DUPLICATE_ADDRESS"}, "40 MEDIUM") // not 80, and no alert
		if n := w.told(l, "fraud_alert_triggered"); n != 0 {
			t.Errorf("there are %d alerts, want none", n)
		}
		w.clean()
	})
}

// What is suspicious if it happens often, and at once.
func TestFrequency(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		var lives []*life
		for range 5 {
			l := w.newLife()
			l.office = offices[1] // of one supervisor
			w.done(l, apply, upload, refuse, evaluate("INELIGIBLE"), override)
			lives = append(lives, l)
		}
		for i, l := range lives {
			want := []string{"DOCUMENT_REJECTED"}
			if i >= 3 {
				want = append(want, "FREQUENT_OVERRIDES") // more than 3 within 30 days
			}
			if got, _ := w.risk(l); !slices.Equal(got, want) {
				t.Errorf("case %d: got %q, want %q", i, got, want)
			}
		}
		w.clock.skip(31 * 24 * time.Hour)
		l := w.newLife()
		l.office = offices[1]
		w.done(l, apply, upload, override)
		if got, risk := w.risk(l); len(got) > 0 {
			t.Errorf("after a month: got %q and %s, want nothing", got, risk)
		}

		fails := func(times int) {
			for try := range times {
				if err := w.settlePayments(t.Context(), derived("batch"), []subemaAnswer{{l, failed, try + 1}}, false, w.clock.now()); err != nil {
					t.Fatal(err)
				}
				w.settle()
			}
		}
		fails(2)
		if got, _ := w.risk(l); len(got) > 0 {
			t.Errorf("after two failures: got %q, want nothing", got)
		}
		fails(1)
		if got, risk := w.risk(l); !slices.Equal(got, []string{"PAYMENT_MANIPULATION"}) || risk != "15 LOW" {
			t.Errorf("after three: got %q and %s", got, risk)
		}
		for _, result := range []string{"INELIGIBLE", "INELIGIBLE", "ELIGIBLE"} {
			w.done(l, evaluate(result)) // the engine takes them in any order
		}
		if got, risk := w.risk(l); !slices.Equal(got, []string{"ANSWERS_CHANGED", "PAYMENT_MANIPULATION"}) || risk != "35 LOW" {
			t.Errorf("after a change of mind: got %q and %s", got, risk)
		}
		w.clean()
	})
}

func TestLevels(t *testing.T) {
	t.Parallel()
	for score, want := range map[int]string{0: "LOW", 39: "LOW", 40: "MEDIUM", 69: "MEDIUM", 70: "HIGH", 100: "HIGH"} {
		if got := levelOf(score); got != want {
			t.Errorf("%d is %s, want %s", score, got, want)
		}
	}
}

// Events of one case that come at the same time add up.
func TestScoreAddsUp(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.done(l, apply)
		var all []eventing.Appendable
		for i := range 12 {
			all = append(all, about(l.caseID, documentRejected{l.caseID, derived(l.caseID, fmt.Sprint(i)), "It cannot be read.", l.handler()}))
		}
		if err := w.append(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if signals, risk := w.risk(l); len(signals) != 12 || risk != "100 HIGH" || w.told(l, "fraud_alert_triggered") != 1 {
			t.Errorf("got %d signals, %s, and %d alerts, want 12, 100 HIGH, and one", len(signals), risk, w.told(l, "fraud_alert_triggered"))
		}
		w.clean()
	})
}
