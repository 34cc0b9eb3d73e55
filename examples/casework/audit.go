package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// What the audit may find.
const (
	underWay   = "events under way"
	inTrouble  = "open dead letters"
	unhandled  = "events that a consumer has not processed"
	unlogged   = "events that are not in the event log"
	unstarted  = "cases that the workflow engine has not begun"
	doubled    = "transitions made twice"
	misplaced  = "transitions out of order"
	illegalOne = "transitions that there are not"
	broken     = "cases whose transitions do not lead from one to the next, or to where the case stands"
	unmade     = "changes of status without their transition"
	unsaid     = "transitions of the engine that were not announced once"
	unsent     = "notifications that were neither sent nor given up"
	misjudged  = "cases whose score is not the sum of their signals"
)

// findings are the IDs that each check objects to.
type findings map[string][]string

func (f findings) add(what string, ids ...string) {
	if len(ids) > 0 {
		f[what] = append(f[what], ids...)
	}
}

// checks are queries for what should not be there, in words that both databases understand.
var checks = []struct{ what, query string }{
	{underWay, `SELECT event_id FROM event_outbox WHERE status = 'pending' UNION SELECT event_id FROM event_deliveries WHERE state <> 'dead'`},
	{inTrouble, `SELECT event_id FROM dead_letter_consumers WHERE status <> 'closed'`},
	{unlogged, `SELECT DISTINCT event_id FROM event_outbox WHERE event_id NOT IN (SELECT CAST(event_id AS text) FROM events)`},
	{unstarted, `SELECT case_id FROM cases WHERE case_id NOT IN (SELECT case_id FROM case_transitions)`},
	{doubled, `SELECT case_id FROM case_transitions GROUP BY case_id, event_id, previous_status, new_status HAVING count(*) > 1
		UNION SELECT case_id FROM case_transitions GROUP BY case_id, position HAVING count(*) > 1`},
	{unsent, `SELECT notification_id FROM notifications WHERE status = 'failed'`},
	{misjudged, `SELECT r.case_id FROM risk_profiles r LEFT JOIN fraud_signals s ON s.case_id = r.case_id GROUP BY r.case_id, r.score
		HAVING r.score <> CASE WHEN coalesce(sum(s.weight), 0) > 100 THEN 100 ELSE coalesce(sum(s.weight), 0) END`},
}

// audit reads the whole database. Events that have been sent for longer than kept are gone, and not asked for.
func (s *system) audit(ctx context.Context, now time.Time) (findings, error) {
	f, err := auditTables(ctx, s.db.read, now.Add(-kept))
	if err == nil {
		err = s.auditDeliveries(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return f, nil
}

// auditTables compares the tables with each other. Of cases opened since then, all events are in the outbox.
func auditTables(ctx context.Context, db querier, since time.Time) (findings, error) {
	f := findings{}
	for _, check := range checks {
		ids, err := texts(ctx, db, check.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", check.what, err)
		}
		f.add(check.what, ids...)
	}
	return f, auditTransitions(ctx, db, since, f)
}

// auditDeliveries accounts for each event at each consumer that the routing table sends it to: processed, or given up by somebody.
func (s *system) auditDeliveries(ctx context.Context, f findings) error {
	report, err := eventing.Audit(ctx, eventing.AuditConfig{Outbox: s.db.events, Stores: []eventing.AuditStore{s.db.events}, Routes: s.app},
		func(a eventing.AuditFinding) error {
			f.add(unhandled, a.EventID)
			return nil
		})
	for consumer, standings := range report.Consumers {
		for standing, n := range standings {
			switch standing {
			case eventing.StandingProcessed, eventing.StandingDiscarded, eventing.StandingMissing: // missing ones are found above
			default:
				f.add(unhandled, fmt.Sprintf("%d %s at %s", n, standing, consumer))
			}
		}
	}
	return err
}

// err is nil if nothing was found.
func (f findings) err() error {
	var errs []error
	for _, what := range []string{
		underWay, inTrouble, unhandled, unlogged, unstarted, doubled, misplaced, illegalOne, broken, unmade, unsaid, unsent, misjudged,
	} {
		if ids := f[what]; len(ids) > 0 {
			errs = append(errs, fmt.Errorf("%d %s, such as %s", len(ids), what, ids[0]))
		}
	}
	return errors.Join(errs...)
}
