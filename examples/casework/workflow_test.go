package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// path is the way of a case through its states.
func (w world) path(l *life) string {
	w.Helper()
	return strings.Join(w.texts(`SELECT new_status FROM case_transitions WHERE case_id = $1 ORDER BY position`, l.caseID), " ")
}

// What people do may come at once: the engine takes it one by one, and does what follows from each in between.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.do(l, apply, upload, assign, wizard, verify, evaluate("ELIGIBLE"), change(stateUnderReview, stateApproved, "means_test", (*life).handler), calculate)
		if err := w.submit(t.Context(), derived("batch"), []*life{l}, w.clock.now()); err != nil {
			t.Fatal(err)
		}
		if err := w.settlePayments(t.Context(), derived("batch"), []subemaAnswer{{l, failed, 1}}, true, w.clock.now()); err != nil {
			t.Fatal(err)
		}
		if err := w.settlePayments(t.Context(), derived("batch"), []subemaAnswer{{l, processed, 2}}, false, w.clock.now()); err != nil {
			t.Fatal(err)
		}
		w.do(l, finish("All is done."), reopen, change(stateUnderReview, stateRejected, "means_test", (*life).supervisor), finish("It is over."))

		overridden := w.newLife()
		w.do(overridden, apply, upload, assign, wizard, refuse, replace, verify, evaluate("PENDING"), evaluate("INELIGIBLE"), override)
		w.settle()
		if got, want := w.path(l), "intake validation eligibility_check under_review approved payment_pending payment_processed closed under_review rejected closed"; got != want {
			t.Errorf("a case went by way of\n%s, want\n%s", got, want)
		}
		if got, want := w.path(overridden), "intake validation eligibility_check rejected under_review"; got != want {
			t.Errorf("a case that was overridden went by way of\n%s, want\n%s", got, want)
		}
		if n := w.count(`SELECT payment_failures FROM cases WHERE case_id = $1`, l.caseID); n != 1 {
			t.Errorf("%d payments are noted as failed, want 1", n)
		}
		w.clean()
	})
}

// Whatever comes in while a case is on hold counts when it is let go; and only whom the hold names lets it go, to where it was.
func TestHold(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		alert := events(func(l *life, _ time.Time) []eventing.Appendable {
			return []eventing.Appendable{about(l.caseID, fraudAlertTriggered{CaseID: l.caseID, RiskLevel: levelHigh, RecommendedAction: "supervisor_review"})}
		})
		w.done(l, apply, upload, assign, wizard, alert, alert, verify, evaluate("ELIGIBLE"))
		w.stands(l, stateOnHold)
		w.done(l, change(stateOnHold, stateValidation, "cleared", (*life).supervisor))
		w.stands(l, stateUnderReview)
		if got, want := w.path(l), "intake validation on_hold validation eligibility_check under_review"; got != want {
			t.Errorf("it went by way of\n%s, want\n%s", got, want)
		}
		w.done(l, change(stateUnderReview, stateRejected, "means_test", (*life).handler), finish("It is over."), alert)
		w.stands(l, stateClosed) // there is nothing to stop
		w.clean()

		for _, c := range []struct {
			to string
			by func(*life) actor
			ok bool
		}{
			{stateIntake, (*life).handler, false},
			{stateUnderReview, (*life).supervisor, false}, // it was not there
			{stateApproved, (*life).supervisor, false},
			{stateIntake, (*life).supervisor, true},
			{stateRejected, (*life).supervisor, true},
			{stateApproved, administrator, true},
		} {
			l := w.newLife()
			w.done(l, apply, alert, change(stateOnHold, c.to, "cleared", c.by))
			want := stateOnHold
			if c.ok {
				want = c.to
			}
			w.stands(l, want)
		}
	})
}

// What cannot be done is tried again, and then freezes its case: a dead letter, an alert, and what happens to the case later waits. Other cases
// go on. Once the operator has mended what was wrong, a replay lets it catch up, in order.
func TestFreeze(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l, other := w.underReview(), w.underReview()
		approve := change(stateUnderReview, stateApproved, "means_test", (*life).handler)
		pay := change(stateApproved, statePaymentPending, "payment_submitted", (*life).supervisor)
		w.do(l, damage)
		w.done(l, approve, pay)
		w.done(other, approve, pay)
		w.done(l, evaluate("ELIGIBLE"))
		w.stands(l, stateIntake)
		w.stands(other, statePaymentPending)

		o := newOperator(w.system, w.clock)
		frozen, err := o.frozen(t.Context())
		if err != nil || len(frozen) != 1 {
			t.Fatalf("got %d frozen cases, %v, want one", len(frozen), err)
		}
		d := frozen[0]
		if d.EventType != "case_status_changed" || d.AttemptCount != 4 || d.ParkedBehind != 2 || d.OrderingKey != "case/"+l.caseID || !strings.Contains(d.Message, l.reference) {
			t.Errorf("got the dead letter %+v", d)
		}
		if alerts := w.tally.alerts; len(alerts) != 1 || alerts[0].Envelope.ID != d.EventID || alerts[0].Consumer != workflowEngine {
			t.Errorf("got the alerts %+v, want one", alerts)
		}
		if f := w.found(); len(f[inTrouble]) != 1 || len(f[underWay]) != 2 || len(f[broken]) != 1 {
			t.Errorf("the audit finds %v", f.err())
		}

		// Replayed before anything is mended, it fails again.
		if err := o.letters.Replay(t.Context(), d.Target(), operatorName, "perhaps it helps"); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.stands(l, stateIntake)
		if frozen, err = o.frozen(t.Context()); err != nil || len(frozen) != 1 || frozen[0].AttemptCount != 8 {
			t.Fatalf("got %+v, %v, want 8 attempts at one", frozen, err)
		}
		if did, err := o.release(t.Context(), frozen[0]); err != nil || did != replayed {
			t.Fatalf("got %q, %v", did, err)
		}
		w.settle()
		w.stands(l, statePaymentPending)
		w.clean()
	})
}

// A decision that can never be right is given up: the case goes on without it.
func TestDecidedTwice(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.underReview()
		w.done(l, change(stateUnderReview, stateApproved, "means_test", (*life).handler), change(stateUnderReview, stateRejected, "means_test", (*life).supervisor),
			change(stateApproved, statePaymentPending, "payment_submitted", (*life).supervisor))
		w.stands(l, stateApproved)
		o := newOperator(w.system, w.clock)
		frozen, err := o.frozen(t.Context())
		if err != nil || len(frozen) != 1 {
			t.Fatalf("got %d frozen cases, %v, want one", len(frozen), err)
		}
		if did, err := o.release(t.Context(), frozen[0]); err != nil || did != discarded {
			t.Fatalf("got %q, %v", did, err)
		}
		w.settle()
		w.stands(l, statePaymentPending)
		w.clean()
	})
}

// What comes too early, or out of nowhere, is impossible, and so is what is not one's to decide.
func TestImpossible(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir()+"/casework.db")
	handler := (*life).handler
	for i, c := range []struct {
		acts []act
		says string
	}{
		{[]act{change(stateIntake, stateApproved, "", handler)}, "cannot take it"},
		{[]act{change(stateIntake, stateOnHold, "", handler)}, "a case_handler cannot take it"}, // the engine's
		{[]act{change(stateIntake, stateIntake, "", handler)}, "cannot take it"},
		{[]act{change(stateValidation, stateEligibilityCheck, "", handler)}, `it cannot be taken from "validation"`},
		{[]act{finish("Early.")}, `cannot take it to "closed"`},
		{[]act{events(func(l *life, now time.Time) []eventing.Appendable {
			return []eventing.Appendable{about(l.caseID, paymentProcessed{CaseID: l.caseID, PaymentID: l.paymentID, Amount: l.amount(), SubemaReference: "SUB-1", ProcessedAt: now})}
		})}, "there is no payment to complete"},
		{[]act{events(func(l *life, _ time.Time) []eventing.Appendable {
			return []eventing.Appendable{about(l.caseID, documentVerified{l.caseID, l.documents[0].id, "VERIFIED", l.handler()})}
		})}, "never uploaded"},
		{[]act{events(func(l *life, _ time.Time) []eventing.Appendable {
			by := systemActor
			by.SystemTriggered = true
			return []eventing.Appendable{about(l.caseID, caseStatusChanged{l.caseID, l.reference, stateIntake, stateRejected, "forged", by})}
		})}, "the engine has not taken"},
		{[]act{apply2}, "cannot take it"},
	} {
		l := w.newLife()
		w.done(l, append([]act{apply}, c.acts...)...)
		w.stands(l, stateIntake)
		got := w.texts(`SELECT reason_message FROM dead_letter_consumers WHERE consumer_name = $1 AND ordering_key = $2`, workflowEngine, "case/"+l.caseID)
		if len(got) != 1 || !strings.Contains(got[0], c.says) {
			t.Errorf("case %d: got %q, want one that says %q", i, got, c.says)
		}
	}
}

// apply2 announces a case that is there already.
var apply2 = events(func(l *life, _ time.Time) []eventing.Appendable {
	e := about(l.caseID, caseCreated{caseCreatedV1{l.caseID, l.reference, l.citizen.id, l.service, l.handler()}, l.office.id})
	e.SchemaVersion = 2
	return []eventing.Appendable{e}
})

// Every state can be reached, and left; and the states are those of the schema.
func TestTransitions(t *testing.T) {
	t.Parallel()
	states := []string{
		stateIntake, stateValidation, stateEligibilityCheck, stateUnderReview, stateApproved, stateRejected, statePaymentPending, statePaymentProcessed, stateOnHold, stateClosed,
	}
	if want := "enum: [" + strings.Join(states, ", ") + "]"; !strings.Contains(string(routesFile), want) {
		t.Errorf("routes.yaml has no %s", want)
	}
	reached := []string{stateNone}
	for i := 0; i < len(reached); i++ {
		for _, tr := range transitions {
			if tr.from == reached[i] && !slices.Contains(reached, tr.to) {
				reached = append(reached, tr.to)
			}
		}
	}
	for _, s := range states {
		if !slices.Contains(reached, s) || !slices.ContainsFunc(transitions, func(tr transition) bool { return tr.from == s }) {
			t.Errorf("%s cannot be reached, or not be left", s)
		}
	}
	seen := map[[2]string]bool{}
	for _, tr := range transitions {
		if pair := [2]string{tr.from, tr.to}; seen[pair] || tr.from == tr.to || len(tr.by) == 0 {
			t.Errorf("%v is there twice, leads nowhere, or is nobody's", tr)
		} else {
			seen[pair] = true
		}
	}
	if possible(stateNone, stateIntake, roleHandler) || !possible(stateNone, stateIntake, roleEngine) || legal(stateClosed, stateIntake) {
		t.Error("possible and legal do not say what the table says")
	}
}
