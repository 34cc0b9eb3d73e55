package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// workflowCase is what the workflow engine knows of a case.
type workflowCase struct {
	id, reference, service, status string
	eligibility                    string // the last result; empty: none yet
	paid                           bool
	heldFrom, releaseBy            string // while it is on hold
}

func loadCase(ctx context.Context, tx *sql.Tx, id string) (*workflowCase, error) {
	c := workflowCase{id: id}
	err := tx.QueryRowContext(ctx, `SELECT case_reference, service_type, status, eligibility, paid, held_from, release_by FROM cases WHERE case_id = $1`, id).
		Scan(&c.reference, &c.service, &c.status, &c.eligibility, &c.paid, &c.heldFrom, &c.releaseBy)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, impossible("there is no case %s", id)
	}
	return &c, err
}

func (c *workflowCase) save(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `UPDATE cases SET status = $2, eligibility = $3, paid = $4, held_from = $5, release_by = $6 WHERE case_id = $1`,
		c.id, c.status, c.eligibility, c.paid, c.heldFrom, c.releaseBy)
	return err
}

// standing is where the case is, or would be if it were not on hold.
func (c *workflowCase) standing() string {
	if c.status == stateOnHold {
		return c.heldFrom
	}
	return c.status
}

// checkRelease checks that a case on hold may be let go, to a state and by a role: back to where it was or to its
// end, by whom the hold named; anywhere, by an administrator.
func (c *workflowCase) checkRelease(to, role string) error {
	if role == roleAdmin || role == c.releaseBy && (to == c.heldFrom || to == stateRejected) {
		return nil
	}
	return impossible("case %s is held at %q until the %s lets it go there, or rejects it; this is %s, to %q", c.reference, c.heldFrom, c.releaseBy, role, to)
}

// move takes a case to another state. What the engine does itself it announces to the others.
func (w *workflow) move(ctx context.Context, tx *sql.Tx, c *workflowCase, to, reason string, by actor) error {
	from := c.status
	if !possible(from, to, by.Role) {
		return impossible("case %s is at %q: a %s cannot take it to %q", c.reference, from, by.Role, to)
	}
	c.status = to
	switch from {
	case stateOnHold:
		c.heldFrom, c.releaseBy = "", ""
	case stateClosed:
		c.paid = false // there is another payment to come
	}
	if err := c.save(ctx, tx); err != nil {
		return err
	}
	madeBy := "person"
	if by.Role == roleEngine {
		madeBy = "engine"
	}
	cause := eventing.CausationID(ctx) // the event that is being handled
	if _, err := tx.ExecContext(ctx, `INSERT INTO case_transitions (case_id, position, previous_status, new_status, reason, made_by, event_id, made_at)
		VALUES ($1, (SELECT count(*) + 1 FROM case_transitions WHERE case_id = $1), $2, $3, $4, $5, $6, $7)`, c.id, from, to, reason, madeBy, cause, w.now()); err != nil {
		return err
	}
	if madeBy != "engine" || from == stateNone {
		return nil
	}
	by.SystemTriggered = true
	return w.outbox.Append(ctx, tx, about(c.id, caseStatusChanged{c.id, c.reference, from, to, reason, by}))
}

func (w *workflow) moveAndAdvance(ctx context.Context, tx *sql.Tx, c *workflowCase, to, reason string, by actor) error {
	if err := w.move(ctx, tx, c, to, reason, by); err != nil {
		return err
	}
	return w.advance(ctx, tx, c)
}

// advance saves what is known of a case, and does what follows from it without anybody's decision. While the case is on hold,
// nothing does; when it goes on, all that has come in meanwhile counts.
func (w *workflow) advance(ctx context.Context, tx *sql.Tx, c *workflowCase) error {
	for {
		to, reason, err := c.next(ctx, tx)
		switch {
		case err != nil:
			return err
		case to == "":
			return c.save(ctx, tx)
		}
		if err := w.move(ctx, tx, c, to, reason, systemActor); err != nil {
			return err
		}
	}
}

// next returns the transition that follows from what is known; none if to is empty.
func (c *workflowCase) next(ctx context.Context, tx *sql.Tx) (to, reason string, err error) {
	switch {
	case c.status == stateValidation:
		if complete, err := c.complete(ctx, tx); err != nil || !complete {
			return "", "", err
		}
		return stateEligibilityCheck, "documents_complete", nil
	case c.status == stateEligibilityCheck && c.eligibility == "ELIGIBLE":
		return stateUnderReview, "eligible", nil
	case c.status == stateEligibilityCheck && c.eligibility == "INELIGIBLE":
		return stateRejected, "ineligible", nil
	case c.status == statePaymentPending && c.paid:
		return statePaymentProcessed, "paid", nil
	}
	return "", "", nil
}

// complete reports whether each document that the service asks for is verified.
func (c *workflowCase) complete(ctx context.Context, tx *sql.Tx) (bool, error) {
	types, known := needed[c.service]
	if !known {
		return false, impossible("nobody has said which documents %s needs", c.service)
	}
	verified, err := texts(ctx, tx, `SELECT document_type FROM case_documents WHERE case_id = $1 AND state = 'verified'`, c.id)
	if err != nil {
		return false, fmt.Errorf("documents of case %s: %w", c.reference, err)
	}
	return !slices.ContainsFunc(types, func(t string) bool { return !slices.Contains(verified, t) }), nil
}
