package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// act is something that somebody does about a case: it writes what it has to, and returns the events that tell of it. Both
// are one commit.
type act func(ctx context.Context, tx *sql.Tx, l *life, now time.Time) ([]eventing.Appendable, error)

// events is an act that writes nothing else.
func events(tell func(l *life, now time.Time) []eventing.Appendable) act {
	return func(_ context.Context, _ *sql.Tx, l *life, now time.Time) ([]eventing.Appendable, error) {
		return tell(l, now), nil
	}
}

// lookUpCitizen has the register of citizens asked; at times it does not answer at first.
func lookUpCitizen(fails bool) act {
	return events(func(l *life, _ time.Time) (all []eventing.Appendable) {
		if fails {
			all = append(all, eventing.New("citizen", l.citizen.id, bisLookupFailed{l.citizen.id, "BIS_TIMEOUT", true}))
		}
		return append(all, eventing.New("citizen", l.citizen.id, bisLookupCompleted{l.citizen.id, true, "VERIFIED"}))
	})
}

// apply opens a case. Some intakes still send version 1 of the event, without their office.
func apply(ctx context.Context, tx *sql.Tx, l *life, now time.Time) ([]eventing.Appendable, error) {
	if _, err := tx.ExecContext(ctx, `INSERT INTO citizens (citizen_id, district, address, sms) VALUES ($1, $2, $3, $4) ON CONFLICT (citizen_id) DO NOTHING`,
		l.citizen.id, l.citizen.district, l.citizen.address, l.citizen.sms); err != nil {
		return nil, err
	}
	office := l.office
	if l.version1 {
		office = offices[0] // the central one
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO cases (case_id, case_reference, citizen_id, office_id, service_type, opened_at) VALUES ($1, $2, $3, $4, $5, $6)`,
		l.caseID, l.reference, l.citizen.id, office.id, l.service, now); err != nil {
		return nil, err
	}
	by := staff(roleIntake, l.office.id, 0).acting()
	v1 := caseCreatedV1{l.caseID, l.reference, l.citizen.id, l.service, by}
	if l.version1 {
		e := about(l.caseID, v1)
		e.IdempotencyKey = "case_created:" + l.reference
		return []eventing.Appendable{e}, nil
	}
	e := about(l.caseID, caseCreated{v1, office.id})
	e.SchemaVersion, e.IdempotencyKey = 2, "case_created:"+l.reference
	return []eventing.Appendable{e}, nil
}

// upload sends documents of a case: all of them, or, to replace one, another one.
var upload = events(func(l *life, _ time.Time) (all []eventing.Appendable) {
	for _, d := range l.documents {
		all = append(all, l.uploaded(d))
	}
	return all
})

func (l *life) uploaded(d document) eventing.Appendable {
	return about(l.caseID, documentUploaded{l.caseID, d.id, d.kind, d.file, d.size, "application/pdf", l.applicant()})
}

func assign(ctx context.Context, tx *sql.Tx, l *life, _ time.Time) ([]eventing.Appendable, error) {
	handler := l.handler()
	_, err := tx.ExecContext(ctx, `UPDATE cases SET handler_id = $2 WHERE case_id = $1`, l.caseID, handler.UserID)
	return []eventing.Appendable{about(l.caseID, caseAssigned{l.caseID, handler.UserID, l.supervisor()})}, err
}

// change is a decision of somebody about where the case goes.
func change(from, to, reason string, by func(l *life) actor) act {
	return events(func(l *life, _ time.Time) []eventing.Appendable {
		return []eventing.Appendable{about(l.caseID, caseStatusChanged{l.caseID, l.reference, from, to, reason, by(l)})}
	})
}

func administrator(*life) actor { return staff(roleAdmin, centralOffice, 0).acting() }

var verify = events(func(l *life, _ time.Time) (all []eventing.Appendable) {
	for _, d := range l.documents {
		all = append(all, about(l.caseID, documentVerified{l.caseID, d.id, "VERIFIED", l.handler()}))
	}
	return all
})

// refuse finds that the first document will not do.
var refuse = events(func(l *life, _ time.Time) []eventing.Appendable {
	d := l.documents[0]
	return []eventing.Appendable{
		about(l.caseID, documentVerified{l.caseID, d.id, "FAILED", l.handler()}),
		about(l.caseID, documentRejected{l.caseID, d.id, "It cannot be read.", l.handler()}),
	}
})

// replace sends another document for the first one.
var replace = events(func(l *life, _ time.Time) []eventing.Appendable {
	old := &l.documents[0]
	old.id, old.file = derived(old.id, "again"), "again_"+old.file
	return []eventing.Appendable{l.uploaded(*old)}
})

var expire = events(func(l *life, now time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, documentExpired{l.caseID, l.documents[0].id, now})}
})

func evaluate(result string) act {
	return events(func(l *life, now time.Time) []eventing.Appendable {
		summary := map[string]criteria{"ELIGIBLE": {3, 3, 0, 0}, "INELIGIBLE": {3, 2, 1, 0}, "PENDING": {3, 2, 0, 1}}[result]
		return []eventing.Appendable{about(l.caseID, eligibilityEvaluated{l.caseID, derived(l.caseID, result, now.String()), result, summary, "1.0.0"})}
	})
}

var override = events(func(l *life, _ time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, eligibilityOverridden{l.caseID, "INELIGIBLE", "ELIGIBLE", "The household has lost its income since.", l.supervisor()})}
})

var calculate = events(func(l *life, _ time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, paymentCalculated{l.caseID, l.paymentID, l.amount(), map[string]any{"months": 1, "rule_version": "1.0.0"}})}
})

func finish(reason string) act {
	return events(func(l *life, _ time.Time) []eventing.Appendable {
		return []eventing.Appendable{about(l.caseID, caseClosed{l.caseID, reason, l.handler()})}
	})
}

var reopen = events(func(l *life, _ time.Time) []eventing.Appendable {
	return []eventing.Appendable{
		about(l.caseID, caseReopened{l.caseID, "The citizen objects to the amount.", l.supervisor()}),
		about(l.caseID, caseStatusChanged{l.caseID, l.reference, stateClosed, stateUnderReview, "reopened", l.supervisor()}),
	}
})

func (l *life) investigation() string { return derived(l.caseID, "investigation") }

var investigate = events(func(l *life, _ time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, fraudInvestigationOpened{l.caseID, l.investigation(), l.fraudOfficer().id})}
})

var exonerate = events(func(l *life, _ time.Time) []eventing.Appendable {
	return []eventing.Appendable{about(l.caseID, fraudCaseCleared{l.caseID, l.investigation(), l.fraudOfficer().acting()})}
})

// damage is no act of the office: somebody has changed the database by hand, without an event.
func damage(ctx context.Context, tx *sql.Tx, l *life, _ time.Time) ([]eventing.Appendable, error) {
	_, err := tx.ExecContext(ctx, setStatus, l.caseID, stateIntake)
	return nil, err
}

const setStatus = `UPDATE cases SET status = $2 WHERE case_id = $1`
