package sqlstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

const auditRow = `
SELECT seq, id, event_id, event_type, coalesce(consumer_name, ''), generation, status, coalesce(sent_at, created_at),
	status = 'sent' AND last_error IS NOT NULL, coalesce(forced, false)
FROM event_outbox `

const auditPage = auditRow + `WHERE seq > $1 ORDER BY seq LIMIT $2`

// As pendingRow and settledRow: that each part has an index of its own.
const auditEvents = `
SELECT * FROM (` + auditRow + `WHERE {in event_id $1} AND (status <> 'pending' OR id <> event_id)
UNION ALL ` + auditRow + `WHERE {in id $1} AND status = 'pending' AND id = event_id) AS rows_of_events ORDER BY seq`

// AuditPage implements [eventing.AuditOutbox].
func (s *Store) AuditPage(ctx context.Context, after int64, limit int) ([]eventing.AuditRow, error) {
	return s.auditRows(ctx, auditPage, after, limit)
}

// AuditEvents implements [eventing.AuditOutbox].
func (s *Store) AuditEvents(ctx context.Context, eventIDs []string) ([]eventing.AuditRow, error) {
	return s.auditRows(ctx, auditEvents, s.list(eventIDs))
}

func (s *Store) auditRows(ctx context.Context, query string, args ...any) (all []eventing.AuditRow, err error) {
	err = each(ctx, s.db, s.sql(query), args, func(rows Rows) error {
		var r eventing.AuditRow
		var at Timestamp
		err := rows.Scan(&r.Seq, &r.ID, &r.EventID, &r.EventType, &r.Consumer, &r.Generation, &r.Status, &at, &r.Aside, &r.Force)
		r.At = at.Time
		all = append(all, r)
		return err
	})
	return all, err
}

// That a sent row is not pending keeps SQLite to the index.
const auditReach = `
SELECT (SELECT coalesce(max(seq), 0) FROM event_outbox), (SELECT min(sent_at) FROM event_outbox WHERE status = 'sent' AND status <> 'pending')`

// Adding nothing keeps Postgres from going through all rows in the order of seq.
const firstSince = `
SELECT coalesce(min(seq), 0) FROM (
	SELECT min(seq + 0) AS seq FROM event_outbox WHERE status <> 'pending' AND sent_at >= $1
	UNION ALL SELECT min(seq + 0) FROM event_outbox WHERE status = 'pending') AS firsts`

// AuditReach implements [eventing.AuditOutbox].
func (s *Store) AuditReach(ctx context.Context, from time.Time) (r eventing.AuditReach, err error) {
	var oldest Timestamp
	if _, err = one(ctx, s.db, s.sql(auditReach), nil, &r.LastSeq, &oldest); err != nil || from.IsZero() {
		r.OldestSent = oldest.Time
		return r, err
	}
	r.OldestSent = oldest.Time
	_, err = one(ctx, s.db, s.sql(firstSince), []any{s.time(from)}, &r.FirstSeq)
	return r, err
}

// One statement sees one moment: between two, an event could go from where the second will
// look to where the first has looked.
const auditDeliveries = `
SELECT event_id, consumer_name, true, '', '', '', 0, generation FROM processed_events WHERE {in event_id $1}
UNION ALL SELECT event_id, consumer_name, false, state, '', '', 0, 0 FROM event_deliveries WHERE {in event_id $1}
UNION ALL SELECT event_id, consumer_name, false, '', status, coalesce(resolution, ''), generation, 0 FROM dead_letter_consumers WHERE {in event_id $1}`

// AuditDeliveries implements [eventing.AuditStore].
func (s *Store) AuditDeliveries(ctx context.Context, eventIDs []string) (map[eventing.Target]eventing.AuditDelivery, error) {
	known := make(map[eventing.Target]eventing.AuditDelivery, len(eventIDs))
	err := each(ctx, s.db, s.sql(auditDeliveries), []any{s.list(eventIDs)}, func(rows Rows) error {
		var t eventing.Target
		var processed bool
		var state, status, resolution string
		var generation, inbox int
		if err := rows.Scan(&t.EventID, &t.Consumer, &processed, &state, &status, &resolution, &generation, &inbox); err != nil {
			return err
		}
		d := known[t] // each row sets what is its table's
		d.Processed = d.Processed || processed
		d.State += eventing.State(state)
		d.Status += eventing.ReviewStatus(status)
		d.Resolution += eventing.Resolution(resolution)
		d.Generation += generation
		d.InboxGeneration += inbox
		known[t] = d
		return nil
	})
	return known, err
}
