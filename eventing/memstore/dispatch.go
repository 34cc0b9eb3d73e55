package memstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

// Claim implements [eventing.DispatchStore]. It does not wait for the open
// transaction.
func (s *Store) Claim(ctx context.Context, r eventing.ClaimRequest) (c eventing.Claimed, err error) {
	exclude := map[int64]bool{}
	asked := make(map[int]*eventing.PartitionClaim, len(r.Partitions))
	for _, p := range r.Partitions {
		asked[p.Partition] = &p
		for _, seq := range p.Exclude {
			exclude[seq] = true
		}
	}
	err = s.read(ctx, func(tx *Tx) {
		holding := tx.holding()
		c.Unsure = len(holding) > 0
		for _, e := range s.pending {
			row := s.outbox.rows[e.id]
			c.Unsure = c.Unsure || !row.DueAt.IsZero() || row.again
			p := asked[row.Partition]
			if p == nil || row.DueAt.After(r.Now) {
				continue
			}
			if row.Lane == eventing.Critical && len(c.Critical) < r.Critical {
				c.Critical = append(c.Critical, row.OutboxRow)
			}
			switch {
			case p.Limit == 0, row.Seq <= p.After, exclude[row.Seq]:
			case row.Generation == 0 && holding[row.OrderingKey]:
			default:
				c.Rows = append(c.Rows, row.OutboxRow)
				p.Limit--
			}
		}
		c.Unadopted = r.Unadopted && len(s.unadopted) > 0
		if r.Writers {
			c.Drawn = s.committedSeq
		}
	})
	return c, err
}

// holding returns the ordering keys that wait for an event which could not be
// published.
func (tx *Tx) holding() map[string]bool {
	keys := map[string]bool{}
	for _, e := range tx.store.dead.rows {
		for _, dl := range e.at {
			if dl.open() && dl.holdsKey {
				keys[dl.OrderingKey] = true
			}
		}
	}
	return keys
}

// Settle implements [eventing.DispatchStore].
func (s *Store) Settle(ctx context.Context, r eventing.SettleRequest) (int, error) {
	settled := 0
	err := s.write(ctx, func(tx *Tx) error {
		for _, claimed := range r.Rows {
			row, ok := tx.toSettle(claimed.ID)
			if !ok || !tx.dispatches(r.Holder, row.Partition, r.Now) {
				continue
			}
			row.status, row.settledAt, row.version = sent, r.Now, r.RoutingVersion
			if r.ByCompletion && tx.diedAtConsumer(row.OutboxRow) {
				row.status = failed
			}
			if r.Delete && row.status == sent {
				tx.outbox.remove(row.ID)
			} else {
				tx.outbox.put(row.ID, row)
			}
			settled++
			if row.Generation > 0 && row.Consumer == "" {
				tx.publishedAfterAll(row.EventID, r)
			}
		}
		return eventing.Fault(ctx, eventing.FaultSettling)
	})
	if err != nil {
		return 0, err
	}
	return settled, nil
}

// Expedite implements [eventing.DispatchStore].
func (s *Store) Expedite(ctx context.Context, r eventing.SettleRequest) error {
	return s.write(ctx, func(tx *Tx) error {
		for _, claimed := range r.Rows {
			if row, ok := tx.toSettle(claimed.ID); ok && tx.dispatches(r.Holder, row.Partition, r.Now) {
				row.Lane = eventing.Expedited
				tx.outbox.put(row.ID, row)
			}
		}
		return eventing.Fault(ctx, eventing.FaultExpediting)
	})
}

func (tx *Tx) toSettle(id string) (outboxRow, bool) {
	row := tx.outbox.get(id)
	if row == nil || row.status != pending || row.unadopted {
		return outboxRow{}, false
	}
	return *row, true
}

// diedAtConsumer reports whether a consumer that the row is for has given its
// event up.
func (tx *Tx) diedAtConsumer(row eventing.OutboxRow) bool {
	event := tx.dead.get(row.EventID)
	if event == nil {
		return false
	}
	for consumer, dl := range event.at {
		unreplayed := dl.Status == eventing.StatusPending || dl.Status == eventing.StatusReviewed
		if consumer != "" && unreplayed && dl.Stage != eventing.StageDispatch &&
			(row.Consumer == "" || row.Consumer == consumer) {
			return true
		}
	}
	return false
}

// publishedAfterAll closes the dead letter of an event that could not be
// published before; this lets go of its key.
func (tx *Tx) publishedAfterAll(eventID string, r eventing.SettleRequest) {
	dl, ok := tx.deadLetter(eventing.Target{EventID: eventID})
	if !ok || dl.Status != eventing.StatusReplayed {
		return
	}
	dl.Status, dl.Resolution, dl.UpdatedAt = eventing.StatusClosed, eventing.Resolved, r.Now
	tx.putDeadLetter(dl)
}

// FailDispatch implements [eventing.DispatchStore]. If the row is not pending
// or not held any more, it does nothing: somebody else looks after it.
func (s *Store) FailDispatch(ctx context.Context, f eventing.DispatchFailure) error {
	return s.write(ctx, func(tx *Tx) error {
		row, ok := tx.toSettle(f.Row.ID)
		if !ok || !tx.dispatches(f.Holder, row.Partition, f.Now) {
			return nil
		}
		row.status, row.settledAt, row.version = failed, f.Now, f.RoutingVersion
		tx.outbox.put(row.ID, row)
		dl := deadLetter{
			DeadLetter: eventing.DeadLetter{
				EventID: row.EventID, Consumer: row.Consumer, EventType: row.EventType, Stage: eventing.StageDispatch,
				Reason: f.Reason, Message: f.Message, OrderingKey: row.OrderingKey, Generation: row.Generation,
				Payload: row.Payload, ExpiresAt: f.DeadLetterUntil,
			},
			holdsKey: f.HoldKey,
		}
		if known, ok := tx.deadLetter(dl.target()); ok {
			dl.AttemptCount, dl.History = known.AttemptCount, known.History
		}
		tx.die(dl, 0, f.Now)
		return eventing.Fault(ctx, eventing.FaultDispatchFailing)
	})
}

func setOf[T comparable](values []T) map[T]bool {
	set := make(map[T]bool, len(values))
	for _, v := range values {
		set[v] = true
	}
	return set
}
