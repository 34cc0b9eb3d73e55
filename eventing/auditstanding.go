package eventing

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// auditor is one audit.
type auditor struct {
	AuditConfig
	found  func(AuditFinding) error
	report AuditReport
}

// doubt is a row that a consumer seems not to know of; without a row, an ID that nobody
// seems to know.
type doubt struct {
	row      AuditRow
	consumer string
	standing Standing
}

// batch audits rows that have been read, and those of the IDs that have none. The outbox
// is read first, and then the consumers: an event that has moved meanwhile has moved
// towards what is read later.
func (a *auditor) batch(ctx context.Context, rows []AuditRow, ids []string) error {
	unread := make(map[string]bool, len(ids)) // of those without a row
	for _, id := range ids {
		unread[id] = true
	}
	ask := slices.Clone(ids)
	for _, row := range rows {
		delete(unread, row.EventID)
		if len(ids) == 0 && row.Status != rowPending {
			ask = append(ask, row.EventID)
		}
	}
	known, err := a.deliveries(ctx, ask)
	if err != nil {
		return err
	}
	var doubts []doubt
	count := func(row AuditRow, consumer string) {
		s := a.standing(row, consumer, known)
		if s == StandingMissing || s == StandingUnknown {
			doubts = append(doubts, doubt{row, consumer, s})
			return
		}
		a.count(consumer, s)
	}
	for _, row := range rows {
		if row.Aside || row.At.Before(a.From) || !a.To.IsZero() && !row.At.Before(a.To) {
			continue
		}
		a.report.Rows++
		for _, consumer := range a.consumers(row) {
			count(row, consumer)
		}
	}
	knowing := map[string][]string{} // of the events without a row
	for t, d := range known {
		if unread[t.EventID] && d.accounts(t) {
			knowing[t.EventID] = append(knowing[t.EventID], t.Consumer)
		}
	}
	for _, id := range ids {
		if !unread[id] {
			continue
		}
		for _, consumer := range knowing[id] {
			count(AuditRow{EventID: id}, consumer)
		}
		if len(knowing[id]) == 0 {
			count(AuditRow{EventID: id}, "")
		}
	}
	if err := a.lookAgain(ctx, doubts); err != nil {
		return err
	}
	if a.Progress != nil {
		a.Progress(a.report)
	}
	return nil
}

// consumers returns those that a row is for; the empty name, if there is none.
func (a *auditor) consumers(row AuditRow) []string {
	if row.Consumer != "" {
		return []string{row.Consumer}
	}
	routes, _ := a.Routes.Route(row.EventType)
	if len(routes) == 0 {
		return []string{""}
	}
	names := make([]string, len(routes))
	for i, r := range routes {
		names[i] = r.Consumer
	}
	return names
}

// standing says what became of a row at a consumer; nothing, if that is for another row
// to say.
func (a *auditor) standing(row AuditRow, consumer string, known map[Target]AuditDelivery) Standing {
	if row.Status == rowPending {
		return StandingPending
	}
	d := known[Target{EventID: row.EventID, Consumer: consumer}]
	open := d.State == StateDead || d.Status != "" && d.Status != StatusClosed
	// The dead letter waits for this very replay.
	awaited := row.Consumer != "" && row.Status == rowSent && d.Status == StatusReplayed && d.Generation == row.Generation
	// What was processed before does not account for a forced run.
	forced := row.Force && d.InboxGeneration < row.Generation
	switch {
	case !forced && (d.Processed || consumer != "" && d.Resolution == Resolved):
		return StandingProcessed
	case d.State == StateRetrying:
		return StandingRetrying
	case d.State == StateParked:
		return StandingParked
	case d.Resolution == Discarded:
		return StandingDiscarded
	case open && !awaited:
		return StandingDead
	case row.Status == rowFailed:
		return undispatched(row, known)
	case row.Status == "":
		return StandingUnknown
	case !a.tracks(consumer):
		return StandingUntracked
	case a.Now().Sub(row.At) < a.Grace:
		return StandingInFlight
	}
	return StandingMissing
}

// tracks reports whether a consumer has its rows in one of the stores.
func (a *auditor) tracks(consumer string) bool {
	_, known := a.Routes.Consumer(consumer)
	return known && consumer != ""
}

// undispatched says what became of a row that could not be sent, and of which its consumer
// does not know: its dead letter is that of no consumer.
func undispatched(row AuditRow, known map[Target]AuditDelivery) Standing {
	switch known[Target{EventID: row.EventID}].Resolution {
	case Resolved: // by the row of its replay
		return ""
	case Discarded:
		return StandingDiscarded
	default:
		return StandingDead
	}
}

func (a *auditor) count(consumer string, s Standing) {
	if s == "" {
		return
	}
	by := a.report.Consumers[consumer]
	if by == nil {
		by = map[Standing]int{}
		a.report.Consumers[consumer] = by
	}
	by[s]++
}

// name reports a finding.
func (a *auditor) name(d doubt, s Standing) error {
	f := AuditFinding{EventID: d.row.EventID, EventType: d.row.EventType, Consumer: d.consumer, Standing: s}
	if s == StandingUnknown {
		a.report.Unknown++
	} else {
		a.report.Missing++
		f.SentAt = d.row.At
	}
	return a.found(f)
}

// lookAgain looks at what is in doubt a second time: at the consumers first, and then at the
// outbox. An inbox row stays for as long as its event has an outbox row (see [PruneStore]):
// where the row is still there, as it was, the consumer has not known and forgotten.
func (a *auditor) lookAgain(ctx context.Context, doubts []doubt) error {
	if len(doubts) == 0 {
		return nil
	}
	ids := make([]string, len(doubts))
	for i, d := range doubts {
		ids[i] = d.row.EventID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	known, err := a.deliveries(ctx, ids)
	if err != nil {
		return err
	}
	rows, err := a.Outbox.AuditEvents(ctx, ids)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	now := make(map[string][]AuditRow, len(ids))
	for _, row := range rows {
		now[row.EventID] = append(now[row.EventID], row)
	}
	for _, d := range doubts {
		s := a.again(&d, known, now[d.row.EventID])
		a.count(d.consumer, s)
		if s != StandingMissing && s != StandingUnknown {
			continue
		}
		if err := a.name(d, s); err != nil {
			return err
		}
	}
	return nil
}

// again says what is to be made of a doubt, given all rows that its event has now.
func (a *auditor) again(d *doubt, known map[Target]AuditDelivery, rows []AuditRow) (s Standing) {
	if d.standing == StandingUnknown {
		for t, known := range known { // it came just now, and its row has gone already
			if t.EventID == d.row.EventID && known.accounts(t) {
				d.consumer = t.Consumer
			}
		}
		if len(rows) > 0 { // appended just now
			return StandingPending
		}
		return a.standing(d.row, d.consumer, known)
	}
	for _, row := range rows {
		if row.Consumer != "" && row.Consumer != d.consumer {
			continue
		}
		now := a.standing(row, d.consumer, known)
		switch {
		case now == StandingPending, now == StandingInFlight: // it may have been sent again, or appended again
			return now
		case row.Seq == d.row.Seq && !row.At.Equal(d.row.At): // sent again, just now
			return StandingInFlight
		case row.Seq == d.row.Seq:
			s = now
		}
	}
	return s // nothing, if its row has been removed
}

// accounts reports whether it tells what became of its event. A dead letter of no consumer
// does not, once the replay of the event has been sent.
func (d AuditDelivery) accounts(t Target) bool { return t.Consumer != "" || d.Resolution != Resolved }

// deliveries returns what the consumers know, in all of their stores.
func (a *auditor) deliveries(ctx context.Context, ids []string) (map[Target]AuditDelivery, error) {
	all := map[Target]AuditDelivery{}
	for _, store := range a.Stores {
		for batch := range slices.Chunk(ids, AuditBatch) {
			known, err := store.AuditDeliveries(ctx, batch)
			if err != nil {
				return nil, fmt.Errorf("audit: %w", err)
			}
			maps.Copy(all, known)
		}
	}
	return all, nil
}
