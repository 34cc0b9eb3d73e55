package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Settle implements [eventing.DispatchStore]. Rows are settled one by one: after an error, some may be.
func (s *Store) Settle(ctx context.Context, r eventing.SettleRequest) (int, error) {
	rows, err := s.held(ctx, r)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	for i := range rows {
		if rows[i].Generation > 0 && rows[i].Consumer == "" {
			if err := s.publishedAfterAll(ctx, rows[i], r); err != nil {
				return 0, err
			}
		}
	}
	var dead map[string]*deadDoc
	if r.ByCompletion {
		if dead, err = s.deadOf(ctx, rows); err != nil {
			return 0, err
		}
	}
	if err := eventing.Fault(ctx, eventing.FaultSettling); err != nil {
		return 0, err
	}
	settled, err := s.settle(ctx, rows, dead, r)
	if err != nil {
		return 0, err
	}
	if r.ByCompletion {
		return settled, s.takeBack(ctx, rows)
	}
	return settled, nil
}

// held returns the rows of partitions that the dispatcher has.
func (s *Store) held(ctx context.Context, r eventing.SettleRequest) (rows []eventing.OutboxRow, err error) {
	partitions, err := s.dispatched(ctx, r.Holder, r.Now)
	for i := range r.Rows {
		if partitions[r.Rows[i].Partition] {
			rows = append(rows, r.Rows[i])
		}
	}
	return rows, err
}

// toSettle selects rows that are still to be settled.
func toSettle(ids ...string) bson.D {
	return bson.D{in("_id", ids), eq("status", pending), eq("partition", bson.D{eq("$gte", 0)})}
}

// settle writes that rows are sent, and that those are failed of which the event has died at a consumer.
func (s *Store) settle(ctx context.Context, rows []eventing.OutboxRow, dead map[string]*deadDoc, r eventing.SettleRequest) (int, error) {
	var published, died []string
	for _, row := range rows {
		if diedAtConsumer(dead[row.EventID], row.Consumer) {
			died = append(died, row.ID)
		} else {
			published = append(published, row.ID)
		}
	}
	n, err := s.settleAs(ctx, died, failed, r)
	if err != nil {
		return n, err
	}
	if r.Delete && len(published) > 0 {
		gone, err := s.outbox.DeleteMany(ctx, toSettle(published...))
		if err != nil {
			return n, typed(err)
		}
		return n + int(gone.DeletedCount), nil
	}
	m, err := s.settleAs(ctx, published, sent, r)
	return n + m, err
}

// settleAs gives rows their last status.
func (s *Store) settleAs(ctx context.Context, ids []string, last status, r eventing.SettleRequest) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	fields := bson.D{eq("status", last), eq("sentAt", r.Now)}
	if r.RoutingVersion != "" {
		fields = append(fields, eq("routingVersion", r.RoutingVersion))
	}
	done, err := s.outbox.UpdateMany(ctx, toSettle(ids...), set(fields))
	if err != nil {
		return 0, typed(err)
	}
	return int(done.MatchedCount), nil
}

// deadOf returns the dead letters of the rows' events.
func (s *Store) deadOf(ctx context.Context, rows []eventing.OutboxRow) (map[string]*deadDoc, error) {
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].EventID
	}
	docs, err := find[deadDoc](ctx, s.dead, bson.D{in("_id", ids)}, options.Find().SetProjection(bson.D{eq("consumers", 1)}))
	dead := make(map[string]*deadDoc, len(docs))
	for i := range docs {
		dead[docs[i].ID] = &docs[i]
	}
	return dead, err
}

// diedAtConsumer reports whether a consumer that a row is for has given its event up.
func diedAtConsumer(event *deadDoc, consumer string) bool {
	if event == nil {
		return false
	}
	for i := range event.Consumers {
		e := &event.Consumers[i]
		unreplayed := e.Status == string(eventing.StatusPending) || e.Status == string(eventing.StatusReviewed)
		if e.Consumer != "" && unreplayed && e.Stage != string(eventing.StageDispatch) && (consumer == "" || consumer == e.Consumer) {
			return true
		}
	}
	return false
}

// takeBack marks rows as failed whose events have died while they were being settled: who
// opened the dead letter found them pending.
func (s *Store) takeBack(ctx context.Context, rows []eventing.OutboxRow) error {
	dead, err := s.deadOf(ctx, rows)
	if err != nil {
		return err
	}
	for i := range rows {
		if !diedAtConsumer(dead[rows[i].EventID], rows[i].Consumer) {
			continue
		}
		if _, err := s.outbox.UpdateOne(ctx, bson.D{eq("_id", rows[i].ID), eq("status", sent)}, set(bson.D{eq("status", failed)})); err != nil {
			return typed(err)
		}
	}
	return nil
}

// publishedAfterAll closes the dead letter of an event that could not be published before;
// this lets go of its key.
func (s *Store) publishedAfterAll(ctx context.Context, row eventing.OutboxRow, r eventing.SettleRequest) error {
	return s.change(ctx, eventing.Target{EventID: row.EventID}, func(c *change) error {
		_, dl, err := c.dead()
		if err != nil {
			return err
		}
		if dl == nil || dl.Status != string(eventing.StatusReplayed) {
			return errUnchanged
		}
		dl.Status, dl.Resolution, dl.UpdatedAt = string(eventing.StatusClosed), string(eventing.Resolved), r.Now
		c.putDead(*dl)
		return eventing.Fault(ctx, eventing.FaultSettling)
	})
}

// Expedite implements [eventing.DispatchStore].
func (s *Store) Expedite(ctx context.Context, r eventing.SettleRequest) error {
	rows, err := s.held(ctx, r)
	if err != nil || len(rows) == 0 {
		return err
	}
	if err := eventing.Fault(ctx, eventing.FaultExpediting); err != nil {
		return err
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	_, err = s.outbox.UpdateMany(ctx, toSettle(ids...), set(bson.D{eq("lane", string(eventing.Expedited))}))
	return typed(err)
}

// FailDispatch implements [eventing.DispatchStore]. If the row is not pending or not held any
// more, it does nothing: somebody else looks after it.
func (s *Store) FailDispatch(ctx context.Context, f eventing.DispatchFailure) error {
	return s.change(ctx, eventing.Target{EventID: f.Row.EventID, Consumer: f.Row.Consumer}, func(c *change) error {
		row, err := findOne[outboxDoc](ctx, s.outbox, toSettle(f.Row.ID))
		if err != nil {
			return err
		}
		if row == nil {
			return errUnchanged
		}
		held, err := s.dispatched(ctx, f.Holder, f.Now)
		if err != nil {
			return err
		}
		if !held[*row.Partition] {
			return errUnchanged
		}
		dl := deadEntry{
			Consumer: row.Consumer, Stage: string(eventing.StageDispatch), ReasonCode: string(f.Reason), Message: f.Message,
			OrderingKey: row.OrderingKey, Generation: row.Generation, ExpiresAt: f.DeadLetterUntil, HoldsKey: f.HoldKey,
			AttemptHistory: []attemptDoc{},
		}
		_, known, err := c.dead()
		if err != nil {
			return err
		}
		if known != nil {
			dl.AttemptCount, dl.AttemptHistory = known.AttemptCount, known.AttemptHistory
		}
		if err := c.bury(dl, row.EventType, row.Payload, 0, f.Now); err != nil {
			return err
		}
		c.then(op{Do: doFail, ID: row.ID, At: f.Now, Version: f.RoutingVersion})
		return eventing.Fault(ctx, eventing.FaultDispatchFailing)
	})
}
