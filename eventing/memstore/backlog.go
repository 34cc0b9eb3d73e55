package memstore

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Backlog implements [eventing.BacklogStore]. It counts without a limit: all is in memory.
func (s *Store) Backlog(ctx context.Context, now time.Time) (b eventing.Backlog, err error) {
	b.Deliveries, b.DeadLetters = map[string]eventing.WaitingDeliveries{}, map[string]int64{}
	err = s.read(ctx, func(*Tx) {
		for _, row := range s.outbox.rows {
			switch row.status {
			case pending:
				b.OldestPending = earlier(b.OldestPending, row.CreatedAt)
				if !row.DueAt.After(now) {
					b.Due++
					b.OldestDue = earlier(b.OldestDue, later(row.CreatedAt, row.DueAt))
				}
			case sent:
				b.OldestSent = earlier(b.OldestSent, row.settledAt)
			case failed:
			}
		}
		keys := map[lane]bool{}
		for _, row := range s.deliveries.rows {
			w := b.Deliveries[row.Consumer]
			switch row.state {
			case eventing.StateRetrying:
				w.Retrying++
			case eventing.StateParked:
				w.Parked++
				if l := laneOf(row.Delivery); !keys[l] {
					keys[l] = true
					w.ParkedKeys++
				}
			case eventing.StateNone, eventing.StateDead:
				continue
			}
			b.Deliveries[row.Consumer] = w
		}
		for _, e := range s.dead.rows {
			for _, dl := range e.at {
				if dl.open() {
					b.DeadLetters[dl.Consumer]++
				}
			}
		}
	})
	return b, err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
