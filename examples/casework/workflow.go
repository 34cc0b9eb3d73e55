package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

const workflowEngine = "workflow_engine"

// workflow is the workflow engine: it alone changes where a case stands. Each event has its effect exactly
// once, and those of a case in the order of their appending.
//
// What follows from an event without anybody's decision the engine does in the same transaction: it
// changes the state, and announces that to the others by a case_status_changed, which it gets
// back like any other and then only confirms.
type workflow struct {
	outbox *eventing.Outbox[*sql.Tx]
	now    func() time.Time
}

func (w *workflow) register(s *system) error {
	return errors.Join(
		handleTx(s, workflowEngine, "initialize_case", w.initialize),
		handleTx(s, workflowEngine, "transition", w.transition),
		handleTx(s, workflowEngine, "confirm_transition", w.confirm),
		handleTx(s, workflowEngine, "close_case", w.closeCase),
		handleTx(s, workflowEngine, "decide_eligibility", w.decide),
		handleTx(s, workflowEngine, "override_eligibility", w.override),
		handleTx(s, workflowEngine, "note_document", w.noteDocument),
		handleTx(s, workflowEngine, "check_documents", w.checkDocuments),
		handleTx(s, workflowEngine, "complete_payment", w.completePayment),
		handleTx(s, workflowEngine, "fail_payment", w.failPayment),
		handleTx(s, workflowEngine, "hold_case", w.hold),
	)
}

func (w *workflow) initialize(ctx context.Context, tx *sql.Tx, e eventing.Event[caseCreated], _ routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	return w.move(ctx, tx, c, stateIntake, "created", systemActor)
}

// transition is what somebody decided. It is checked: that the case stands where they thought, that
// there is such a transition, and that it is theirs to decide.
func (w *workflow) transition(ctx context.Context, tx *sql.Tx, e eventing.Event[caseStatusChanged], _ routing.Action) error {
	p := e.Payload
	c, err := loadCase(ctx, tx, p.CaseID)
	if err != nil {
		return err
	}
	if c.status != p.PreviousStatus {
		return impossible("case %s is at %q: it cannot be taken from %q to %q", c.reference, c.status, p.PreviousStatus, p.NewStatus)
	}
	if c.status == stateOnHold {
		if err := c.checkRelease(p.NewStatus, p.ChangedBy.Role); err != nil {
			return err
		}
	}
	return w.moveAndAdvance(ctx, tx, c, p.NewStatus, p.TransitionReason, p.ChangedBy)
}

// confirm checks that a transition which the engine announced has been made. It was, in the transaction
// that announced it.
func (w *workflow) confirm(ctx context.Context, tx *sql.Tx, e eventing.Event[caseStatusChanged], _ routing.Action) error {
	p := e.Payload
	n, err := count(ctx, tx, `SELECT count(*) FROM case_transitions WHERE case_id = $1 AND event_id = $2 AND previous_status = $3 AND new_status = $4 AND made_by = 'engine'`,
		p.CaseID, e.CausationID, p.PreviousStatus, p.NewStatus)
	if err == nil && n == 0 {
		err = impossible("the engine has not taken case %s from %q to %q", p.CaseID, p.PreviousStatus, p.NewStatus)
	}
	return err
}

func (w *workflow) closeCase(ctx context.Context, tx *sql.Tx, e eventing.Event[caseClosed], _ routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	return w.move(ctx, tx, c, stateClosed, "case_closed", systemActor)
}

func (w *workflow) decide(ctx context.Context, tx *sql.Tx, e eventing.Event[eligibilityEvaluated], _ routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	c.eligibility = e.Payload.Result
	return w.advance(ctx, tx, c)
}

// override takes the place of the evaluation: a case that went the way of the old result is put
// on the way of the new one.
func (w *workflow) override(ctx context.Context, tx *sql.Tx, e eventing.Event[eligibilityOverridden], _ routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	c.eligibility = e.Payload.OverrideResult
	to := map[string]string{"ELIGIBLE": stateUnderReview, "INELIGIBLE": stateRejected}[c.eligibility]
	if possible(c.status, to, roleEngine) {
		return w.moveAndAdvance(ctx, tx, c, to, "eligibility_overridden", systemActor)
	}
	return w.advance(ctx, tx, c)
}

func (w *workflow) noteDocument(ctx context.Context, tx *sql.Tx, e eventing.Event[documentUploaded], a routing.Action) error {
	// A document_rejected has no type: it keeps that of the document_uploaded.
	_, err := tx.ExecContext(ctx, `INSERT INTO case_documents (document_id, case_id, document_type, state) VALUES ($1, $2, $3, $4)
		ON CONFLICT (document_id) DO UPDATE SET state = excluded.state`, e.Payload.DocumentID, e.Payload.CaseID, e.Payload.DocumentType, a.Text("document"))
	return err
}

func (w *workflow) checkDocuments(ctx context.Context, tx *sql.Tx, e eventing.Event[documentVerified], _ routing.Action) error {
	state := "received"
	if e.Payload.VerificationResult == "VERIFIED" {
		state = "verified"
	}
	known, err := affected(tx.ExecContext(ctx, `UPDATE case_documents SET state = $1 WHERE document_id = $2`, state, e.Payload.DocumentID))
	switch {
	case err != nil:
		return err
	case known == 0:
		return impossible("document %s was verified and never uploaded", e.Payload.DocumentID)
	}
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	return w.advance(ctx, tx, c)
}

func (w *workflow) completePayment(ctx context.Context, tx *sql.Tx, e eventing.Event[paymentProcessed], _ routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil {
		return err
	}
	if c.standing() != statePaymentPending {
		return impossible("case %s is at %q: there is no payment to complete", c.reference, c.status)
	}
	c.paid = true
	return w.advance(ctx, tx, c)
}

// failPayment notes it. The case stays where it is: the payment may yet succeed.
func (w *workflow) failPayment(ctx context.Context, tx *sql.Tx, e eventing.Event[paymentFailed], _ routing.Action) error {
	_, err := tx.ExecContext(ctx, `UPDATE cases SET payment_failures = payment_failures + 1 WHERE case_id = $1`, e.Payload.CaseID)
	return err
}

// hold stops a case until whom the action names lets it go on. One that has ended cannot be
// stopped any more.
func (w *workflow) hold(ctx context.Context, tx *sql.Tx, e eventing.Event[fraudAlertTriggered], a routing.Action) error {
	c, err := loadCase(ctx, tx, e.Payload.CaseID)
	if err != nil || !possible(c.status, stateOnHold, roleEngine) {
		return err
	}
	c.heldFrom, c.releaseBy = c.status, a.Text("release_by")
	return w.move(ctx, tx, c, stateOnHold, "fraud_alert", systemActor)
}

// impossible is the error of what cannot be done to a case as it is. It is tried again, for what is in the way
// may be mended by then; after the last attempt, the case is frozen until it is.
func impossible(format string, args ...any) error { return fmt.Errorf(format, args...) }
