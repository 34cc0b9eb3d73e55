package memstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Stats implements [eventing.AdminStore].
func (s *Store) Stats(ctx context.Context) (eventing.Stats, error) {
	stats := eventing.Stats{Outbox: map[string]int64{}, Deliveries: map[string]int64{}, DeadLetters: map[string]int64{}}
	err := s.read(ctx, func(*Tx) {
		for _, row := range s.outbox.rows {
			stats.Outbox[string(row.status)]++
			switch row.status {
			case pending:
				stats.OldestPending = earlier(stats.OldestPending, row.CreatedAt)
			case sent:
				stats.OldestSent = earlier(stats.OldestSent, row.settledAt)
			case failed:
			}
		}
		stats.Inbox = int64(len(s.inbox.rows))
		for _, row := range s.deliveries.rows {
			stats.Deliveries[string(row.state)]++
		}
		for _, e := range s.dead.rows {
			for _, dl := range e.at {
				stats.DeadLetters[string(dl.Status)]++
			}
		}
	})
	return stats, err
}

func earlier(known, t time.Time) time.Time {
	if known.IsZero() || t.Before(known) {
		return t
	}
	return known
}

// Requeue implements [eventing.AdminStore].
func (s *Store) Requeue(ctx context.Context, f eventing.RequeueFilter, dry bool) (int, error) {
	ids := setOf(f.EventIDs)
	n := 0
	err := s.write(ctx, func(tx *Tx) error {
		for id, row := range s.outbox.rows {
			if row.status != sent || len(ids) > 0 && !ids[row.EventID] ||
				row.settledAt.Before(f.SentFrom) || !f.SentTo.IsZero() && !row.settledAt.Before(f.SentTo) {
				continue
			}
			n++
			if !dry {
				again := *row
				again.status, again.settledAt = pending, time.Time{}
				tx.outbox.put(id, again)
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
