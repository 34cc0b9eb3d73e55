package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

const fraudEngine = "fraud_engine"

// fraud is the fraud engine. What it hears it keeps as facts, by event; from facts follow signals,
// and from the signals of a case its score. All of these are found by what they come from, so that doing
// it all again adds nothing.
type fraud struct {
	outbox *eventing.Outbox[*sql.Tx]
	*switches
}

func (f *fraud) register(s *system) error {
	return errors.Join(
		judge(s, f, "screen_case", f.screen),
		judge(s, f, "update_profile", f.updateProfile),
		judge(s, f, "weigh_evaluation", f.weighEvaluation),
		judge(s, f, "flag_override", f.flagOverride),
		judge(s, f, "analyze_document", f.analyzeDocument),
		judge(s, f, "raise_suspicion", f.raiseSuspicion),
		judge(s, f, "check_payments", f.checkPayments),
	)
}

// judge registers the handler of an action. If the event could not be judged before, what was assumed instead no longer counts.
func judge[T any](s *system, f *fraud, action string, fn func(context.Context, *sql.Tx, eventing.Event[T], routing.Action) error) error {
	return handleTx(s, fraudEngine, action, func(ctx context.Context, tx *sql.Tx, e eventing.Event[T], a routing.Action) error {
		if attempt, _ := eventing.AttemptFromContext(ctx); attempt.Generation > 0 { // a replay
			if err := f.withdraw(ctx, tx, e.Header); err != nil {
				return err
			}
		}
		return fn(ctx, tx, e, a)
	})
}

// screen looks at a new case: who else lives at that address, what else the citizen has applied for,
// and whether either is on the watch list.
func (f *fraud) screen(ctx context.Context, tx *sql.Tx, e eventing.Event[caseCreated], _ routing.Action) error {
	if err := f.pass(ctx, "watch list", e.Payload.CaseID); err != nil {
		return fmt.Errorf("watch list: %w", err)
	}
	neighbours, err := count(ctx, tx, `SELECT count(*) FROM citizens n JOIN citizens c ON c.address = n.address JOIN cases k ON k.citizen_id = n.citizen_id
		WHERE c.citizen_id = $1 AND n.citizen_id <> $1 AND k.opened_at < $2`, e.Payload.CitizenID, e.OccurredAt)
	if err != nil {
		return err
	}
	earlier, err := count(ctx, tx, `SELECT count(*) FROM cases WHERE citizen_id = $1 AND case_id <> $2 AND opened_at > $3 AND opened_at < $4`,
		e.Payload.CitizenID, e.Payload.CaseID, e.OccurredAt.AddDate(0, 0, -30), e.OccurredAt)
	if err != nil {
		return err
	}
	var signals []weighedSignal
	if neighbours > 0 {
		signals = append(signals, weighedSignal{"DUPLICATE_ADDRESS", levelHigh, 30})
	}
	if earlier > 0 {
		signals = append(signals, weighedSignal{"RAPID_REAPPLICATION", levelMedium, 20})
	}
	return f.signal(ctx, tx, e.Header, e.Payload.CaseID, signals...)
}

func (f *fraud) updateProfile(ctx context.Context, tx *sql.Tx, e eventing.Event[caseStatusChanged], _ routing.Action) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO risk_profiles (case_id, case_status) VALUES ($1, $2)
		ON CONFLICT (case_id) DO UPDATE SET case_status = excluded.case_status`, e.Payload.CaseID, e.Payload.NewStatus)
	return err
}

// weighEvaluation: who was ineligible again and again, and suddenly is not, has changed the answers until they fitted.
func (f *fraud) weighEvaluation(ctx context.Context, tx *sql.Tx, e eventing.Event[eligibilityEvaluated], _ routing.Action) error {
	const again = 2
	citizenID, err := citizenOf(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	switch e.Payload.Result {
	case "INELIGIBLE":
		return f.note(ctx, tx, e.Header, "ineligible", citizenID, e.Payload.CaseID)
	case "ELIGIBLE":
		if n, err := f.facts(ctx, tx, "ineligible", citizenID, e.OccurredAt.AddDate(-1, 0, 0)); err != nil || n < again {
			return err
		}
		return f.signal(ctx, tx, e.Header, e.Payload.CaseID, weighedSignal{"ANSWERS_CHANGED", levelMedium, 20})
	}
	return nil
}

func (f *fraud) flagOverride(ctx context.Context, tx *sql.Tx, e eventing.Event[eligibilityOverridden], a routing.Action) error {
	return f.flagIfFrequent(ctx, tx, e.Header, a, "override", e.Payload.OverriddenBy.UserID, e.Payload.CaseID,
		weighedSignal{"FREQUENT_OVERRIDES", levelMedium, 15})
}

func (f *fraud) checkPayments(ctx context.Context, tx *sql.Tx, e eventing.Event[paymentFailed], a routing.Action) error {
	citizenID, err := citizenOf(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	return f.flagIfFrequent(ctx, tx, e.Header, a, "payment failure", citizenID, e.Payload.CaseID,
		weighedSignal{"PAYMENT_MANIPULATION", levelMedium, 15})
}

// flagIfFrequent notes that somebody did something, and gives a signal if that was too often: more_than times in within_days.
func (f *fraud) flagIfFrequent(ctx context.Context, tx *sql.Tx, h eventing.Header, a routing.Action, kind, subject, caseID string, signal weighedSignal) error {
	if err := f.note(ctx, tx, h, kind, subject, caseID); err != nil {
		return err
	}
	n, err := f.facts(ctx, tx, kind, subject, h.OccurredAt.AddDate(0, 0, -int(a.Number("within_days"))))
	if err != nil || n <= int(a.Number("more_than")) {
		return err
	}
	return f.signal(ctx, tx, h, caseID, signal)
}

// analyzeDocument looks at what is known of a file without opening it: whether it has come with
// another case before.
func (f *fraud) analyzeDocument(ctx context.Context, tx *sql.Tx, e eventing.Event[documentUploaded], _ routing.Action) error {
	p := e.Payload
	likeness := p.FileName + " " + strconv.Itoa(p.FileSize)
	others, err := count(ctx, tx, `SELECT count(*) FROM fraud_facts WHERE kind = 'document' AND subject = $1 AND case_id <> $2 AND at < $3`, likeness, p.CaseID, e.OccurredAt)
	if err != nil {
		return err
	}
	if err := f.note(ctx, tx, e.Header, "document", likeness, p.CaseID); err != nil || others == 0 {
		return err
	}
	return f.signal(ctx, tx, e.Header, p.CaseID, weighedSignal{"DOCUMENT_REUSED", levelHigh, 28})
}

func (f *fraud) raiseSuspicion(ctx context.Context, tx *sql.Tx, e eventing.Event[documentRejected], a routing.Action) error {
	return f.signal(ctx, tx, e.Header, e.Payload.CaseID, weighedSignal{"DOCUMENT_REJECTED", levelLow, int(a.Number("points"))})
}

// assumeMedium is what becomes of an event that could not be judged at any attempt: the case counts as of
// medium risk, until signals say more, or the event's dead letter is replayed. It runs in the transaction that concludes the event. The library has logged the failure.
func (f *fraud) assumeMedium(ctx context.Context, tx any, c eventing.Conclusion) error {
	e := c.Envelope // its payload may be what is wrong
	if e.AggregateType != caseAggregate {
		return fmt.Errorf("%s %s is about no case", e.Type, e.ID)
	}
	return f.signal(ctx, tx.(*sql.Tx), e.Header, e.AggregateID, weighedSignal{notAssessed, levelMedium, mediumScore})
}

const notAssessed = "NOT_ASSESSED"

func citizenOf(ctx context.Context, tx *sql.Tx, caseID string) (id string, err error) {
	if err = tx.QueryRowContext(ctx, `SELECT citizen_id FROM cases WHERE case_id = $1`, caseID).Scan(&id); err != nil {
		err = fmt.Errorf("the citizen of case %s: %w", caseID, err)
	}
	return id, err
}

// note keeps a fact: that a subject did what a kind says, as an event tells.
func (f *fraud) note(ctx context.Context, tx *sql.Tx, h eventing.Header, kind, subject, caseID string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO fraud_facts (event_id, kind, subject, case_id, at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (event_id, kind) DO NOTHING`, h.ID, kind, subject, caseID, h.OccurredAt)
	return err
}

func (f *fraud) facts(ctx context.Context, tx *sql.Tx, kind, subject string, since time.Time) (int, error) {
	return count(ctx, tx, `SELECT count(*) FROM fraud_facts WHERE kind = $1 AND subject = $2 AND at > $3`, kind, subject, since)
}
