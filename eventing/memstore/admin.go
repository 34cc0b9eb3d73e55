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
func (s *Store) Requeue(ctx context.Context, seqs []int64) (int, error) {
	n, selected := 0, setOf(seqs)
	err := s.write(ctx, func(tx *Tx) error {
		for id, row := range s.outbox.rows {
			if row.status != sent || !selected[row.Seq] {
				continue
			}
			n++
			again := *row
			again.status, again.settledAt, again.again = pending, time.Time{}, true
			if again.Lane == eventing.Expedited { // its unordered consumers need it, too
				again.Lane = eventing.Critical
			}
			tx.outbox.put(id, again)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
