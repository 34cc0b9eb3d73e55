package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// made is a row of case_transitions.
type made struct {
	caseID, from, to, madeBy, eventID string
	seq                               int64 // of the event that it follows from; 0: it is not in the outbox
}

// announced is what a case_status_changed says.
type announced struct {
	caseID, from, to, eventID string
}

// auditTransitions checks the transitions of each case: they begin at the beginning, each begins where the one before has ended, the
// last is where the case stands; they are in the order of the events that they follow from; and they are what was decided and
// announced, each once.
func auditTransitions(ctx context.Context, db querier, since time.Time, f findings) error {
	stands, whole, err := standings(ctx, db, since)
	if err != nil {
		return err
	}
	byCase := map[string][]made{}
	count := map[announced]int{}
	if err := eachTransition(ctx, db, func(t made) {
		byCase[t.caseID] = append(byCase[t.caseID], t)
		count[announced{t.caseID, t.from, t.to, t.eventID}]++
		if !legal(t.from, t.to) {
			f.add(illegalOne, t.caseID)
		}
	}); err != nil {
		return err
	}
	for caseID, all := range byCase {
		at, seq := stateNone, int64(0)
		for _, t := range all {
			if t.from != at {
				f.add(broken, caseID)
			}
			if whole[caseID] && t.seq < seq {
				f.add(misplaced, caseID)
			}
			at, seq = t.to, t.seq
		}
		if stands[caseID] != at {
			f.add(broken, caseID)
		}
	}
	return auditAnnouncements(ctx, db, whole, f, byCase, count)
}

// standings returns where each case stands, and which were opened since a point in time: of these, all events are in the outbox.
func standings(ctx context.Context, db querier, since time.Time) (stands map[string]string, whole map[string]bool, err error) {
	stands, whole = map[string]string{}, map[string]bool{}
	err = each(ctx, db, `SELECT case_id, status, opened_at FROM cases`, nil, func(scan func(...any) error) error {
		var id, status string
		var opened time.Time
		err := scan(&id, &status, &opened)
		stands[id], whole[id] = status, !opened.Before(since)
		return err
	})
	return stands, whole, err
}

// eachTransition calls fn with all transitions, those of a case in their order.
func eachTransition(ctx context.Context, db querier, fn func(made)) error {
	return each(ctx, db, `SELECT t.case_id, t.previous_status, t.new_status, t.made_by, t.event_id, coalesce(o.seq, 0)
		FROM case_transitions t LEFT JOIN (SELECT event_id, min(seq) AS seq FROM event_outbox GROUP BY event_id) o ON o.event_id = t.event_id
		ORDER BY t.case_id, t.position`, nil, func(scan func(...any) error) error {
		var t made
		err := scan(&t.caseID, &t.from, &t.to, &t.madeBy, &t.eventID, &t.seq)
		fn(t)
		return err
	})
}

// auditAnnouncements compares the transitions with the events about them: a person's is the event's own, and follows from it; the
// engine's is announced by an event that it causes.
func auditAnnouncements(ctx context.Context, db querier, whole map[string]bool, f findings, byCase map[string][]made, count map[announced]int) error {
	discarded, err := texts(ctx, db, `SELECT event_id FROM dead_letter_consumers WHERE consumer_name = $1 AND resolution = 'discarded'`, workflowEngine)
	if err != nil {
		return err
	}
	given := map[string]bool{}
	for _, id := range discarded {
		given[id] = true
	}
	told := map[announced]int{}
	seen := map[string]bool{}
	err = each(ctx, db, `SELECT payload FROM event_outbox WHERE event_type = 'case_status_changed'`, nil, func(scan func(...any) error) error {
		var payload string
		if err := scan(&payload); err != nil {
			return err
		}
		e, p, err := statusChange(payload)
		if err != nil || seen[e.ID] { // a replay has a row of its own
			return err
		}
		seen[e.ID] = true
		by := announced{p.CaseID, p.PreviousStatus, p.NewStatus, e.ID}
		switch {
		case p.ChangedBy.SystemTriggered:
			by.eventID = e.CausationID
			told[by]++
		case count[by] != 1 && !given[e.ID]:
			f.add(unmade, e.ID)
		}
		return nil
	})
	for caseID, all := range byCase {
		for _, t := range all {
			by := announced{t.caseID, t.from, t.to, t.eventID}
			if t.madeBy == "engine" && t.from != stateNone && told[by] != 1 && whole[caseID] {
				f.add(unsaid, caseID)
			}
			delete(told, by)
		}
	}
	for by := range told {
		f.add(unmade, by.caseID)
	}
	return err
}

func statusChange(payload string) (e eventing.Envelope, p caseStatusChanged, err error) {
	if e, err = eventing.DecodeEnvelope([]byte(payload)); err == nil {
		err = json.Unmarshal(e.Payload, &p)
	}
	return e, p, err
}
