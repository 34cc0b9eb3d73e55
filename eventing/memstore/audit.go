package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// AuditPage implements [eventing.AuditOutbox].
func (s *Store) AuditPage(ctx context.Context, after int64, limit int) ([]eventing.AuditRow, error) {
	rows, err := s.auditRows(ctx, func(row *outboxRow) bool { return row.Seq > after })
	return rows[:min(len(rows), limit)], err
}

// AuditEvents implements [eventing.AuditOutbox].
func (s *Store) AuditEvents(ctx context.Context, eventIDs []string) ([]eventing.AuditRow, error) {
	ids := setOf(eventIDs)
	return s.auditRows(ctx, func(row *outboxRow) bool { return ids[row.EventID] })
}

func (s *Store) auditRows(ctx context.Context, selects func(*outboxRow) bool) (rows []eventing.AuditRow, err error) {
	err = s.read(ctx, func(*Tx) {
		for _, row := range s.outbox.rows {
			if !selects(row) {
				continue
			}
			at := row.settledAt
			if at.IsZero() {
				at = row.CreatedAt
			}
			rows = append(rows, eventing.AuditRow{
				Seq: row.Seq, ID: row.ID, EventID: row.EventID, EventType: row.EventType, Consumer: row.Consumer, Generation: row.Generation, Force: row.Force,
				Status: string(row.status), At: at, Aside: row.status == sent && row.unadopted,
			})
		}
		slices.SortFunc(rows, func(a, b eventing.AuditRow) int { return cmp.Compare(a.Seq, b.Seq) })
	})
	return rows, err
}

// AuditReach implements [eventing.AuditOutbox]: any row may be the first.
func (s *Store) AuditReach(ctx context.Context, _ time.Time) (eventing.AuditReach, error) {
	var reach eventing.AuditReach
	err := s.read(ctx, func(*Tx) {
		reach.LastSeq = s.committedSeq
		for _, row := range s.outbox.rows {
			if row.status == sent {
				reach.OldestSent = earlier(reach.OldestSent, row.settledAt)
			}
		}
	})
	return reach, err
}

// AuditDeliveries implements [eventing.AuditStore].
func (s *Store) AuditDeliveries(ctx context.Context, eventIDs []string) (map[eventing.Target]eventing.AuditDelivery, error) {
	ids := setOf(eventIDs)
	known := map[eventing.Target]eventing.AuditDelivery{}
	err := s.read(ctx, func(*Tx) {
		for t, row := range s.inbox.rows {
			if ids[t.EventID] {
				known[t] = eventing.AuditDelivery{Processed: true, InboxGeneration: row.generation}
			}
		}
		for t, row := range s.deliveries.rows {
			if ids[t.EventID] {
				d := known[t]
				d.State = row.state
				known[t] = d
			}
		}
		for id := range ids {
			if e := s.dead.rows[id]; e != nil {
				for _, dl := range e.at {
					d := known[dl.target()]
					d.Status, d.Resolution, d.Generation = dl.Status, dl.Resolution, dl.Generation
					known[dl.target()] = d
				}
			}
		}
	})
	return known, err
}
