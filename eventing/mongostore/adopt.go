package mongostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Adopt implements [eventing.DispatchStore]. What is to become of a row that replays, or of
// which nothing comes, is written down in the row first, and then done step by step: whoever finds it
// half done goes on.
func (s *Store) Adopt(ctx context.Context, r eventing.AdoptRequest) (int, error) {
	rows, err := find[outboxDoc](ctx, s.outbox, byHand(), options.Find().SetSort(ascending("createdAt", "_id")).SetLimit(int64(max(r.Limit, 0))))
	if err != nil || r.Limit <= 0 {
		return 0, err
	}
	adopted := 0
	for i := range rows {
		taken, adoptErr := s.adopt(ctx, rows[i], r)
		if taken {
			adopted++
		}
		var crash *crash
		if errors.As(adoptErr, &crash) {
			return adopted, crash.error
		}
		if adoptErr != nil {
			err = errors.Join(err, fmt.Errorf("adopt the outbox row %s: %w", rows[i].ID, adoptErr))
		}
	}
	return adopted, err
}

func (s *Store) adopt(ctx context.Context, row outboxDoc, r eventing.AdoptRequest) (taken bool, err error) {
	if row.CreatedAt.IsZero() {
		row.CreatedAt = r.Now
	}
	event, err := findOne[deadDoc](ctx, s.dead, bson.D{eq("_id", row.EventID)})
	if err != nil {
		return false, err
	}
	complete, refused := eventing.CompleteRow(row.row())
	if event != nil && eventing.IsUndecodable(row.EventID) {
		complete, refused = row.row(), nil // nobody expects an envelope
	}
	if row.Aside == "" && row.Replays == nil {
		if err := eventing.Fault(ctx, eventing.FaultAdopted); err != nil {
			return false, &crash{err}
		}
	}
	switch {
	case row.Replays != nil:
	case row.Aside != "":
	case refused != nil:
		return s.refuse(ctx, row, refused, r)
	case event == nil:
		return s.takeIn(ctx, row, complete)
	case !event.open():
		if row.Seq, err = s.draw(ctx, outboxCounter, 1); err != nil {
			return false, err
		}
		row.Aside = eventing.NewID()
		if taken, err = s.mark(ctx, row, bson.D{eq("aside", row.Aside), eq("seq", row.Seq)}); !taken || err != nil {
			return false, err
		}
	default:
		if row.Replays, err = s.planReplays(ctx, event); err != nil {
			return false, err
		}
		if taken, err = s.mark(ctx, row, bson.D{eq("replays", row.Replays)}); !taken || err != nil {
			return false, err
		}
	}
	if row.Replays != nil {
		return true, s.replayPlanned(ctx, row, complete.Payload, r.Now)
	}
	aside, err := setAside(row, sent, r.Now)
	if err != nil {
		return false, err
	}
	return true, s.redo(ctx, []op{aside, {Do: doDropByHand, ID: row.ID}})
}

// mark writes down what is to become of a row, if nobody else has.
func (s *Store) mark(ctx context.Context, row outboxDoc, fields bson.D) (won bool, err error) {
	changed, err := s.outbox.UpdateOne(ctx, append(byHand(), eq("_id", row.ID), eq("aside", nil), eq("replays", nil)), set(fields))
	return err == nil && changed.MatchedCount == 1, typed(err)
}

// takeIn completes a new event in place.
func (s *Store) takeIn(ctx context.Context, row outboxDoc, complete eventing.OutboxRow) (taken bool, err error) {
	doc := newOutboxDoc(complete)
	if doc.Seq, err = s.draw(ctx, outboxCounter, 1); err != nil {
		return false, err
	}
	changed, err := s.outbox.ReplaceOne(ctx, append(byHand(), eq("_id", row.ID), eq("aside", nil), eq("replays", nil)), doc)
	return err == nil && changed.MatchedCount == 1, typed(err)
}

// setAside keeps a row of which nothing comes, settled, under an ID of its own.
func setAside(row outboxDoc, as status, now time.Time) (op, error) {
	row.ID, row.Aside, row.Status, row.SentAt = row.Aside, row.ID, as, now
	return insertOp(outboxCollection, row)
}

// planReplays lists the event's open dead letters. What is retrying or parked is on its way already.
func (s *Store) planReplays(ctx context.Context, event *deadDoc) ([]plannedCopy, error) {
	planned := []plannedCopy{}
	for i := range event.Consumers {
		e := &event.Consumers[i]
		if !e.open() {
			continue
		}
		c, err := s.look(ctx, eventing.Target{EventID: event.ID, Consumer: e.Consumer})
		if err != nil {
			return nil, err
		}
		if d := c.doc.Delivery; d == nil || d.State == string(eventing.StateDead) {
			planned = append(planned, plannedCopy{e.Consumer, e.Generation})
		}
	}
	return planned, nil
}

// replayPlanned replays those dead letters that are as they were planned, with the payload
// of the row: perhaps it was mended. Then it removes the row.
func (s *Store) replayPlanned(ctx context.Context, row outboxDoc, payload []byte, now time.Time) error {
	act := eventing.Act{Act: "replayed", By: "sql", At: now, Note: "row " + row.ID}
	for _, planned := range row.Replays {
		err := s.change(ctx, eventing.Target{EventID: row.EventID, Consumer: planned.Consumer}, func(c *change) error {
			event, dl, err := c.dead()
			if err != nil {
				return err
			}
			d := c.doc.Delivery
			if dl == nil || !dl.open() || dl.Generation != planned.Generation || d != nil && d.State != string(eventing.StateDead) {
				return errUnchanged
			}
			event.Payload = payload
			return c.replay(event, *dl, act, payload)
		})
		if err != nil {
			return err
		}
	}
	if err := eventing.Fault(ctx, eventing.FaultCompleting); err != nil {
		return &crash{err}
	}
	_, err := s.outbox.DeleteOne(ctx, append(byHand(), eq("_id", row.ID)))
	return typed(err)
}

// refuse makes a dead letter of a hand-written row that is no envelope.
func (s *Store) refuse(ctx context.Context, row outboxDoc, cause error, r eventing.AdoptRequest) (taken bool, err error) {
	id, payload := eventing.Undecodable(row.Payload)
	message := bounded("row " + row.ID + ": " + cause.Error())
	err = s.change(ctx, eventing.Target{EventID: id}, func(c *change) error {
		found, err := findOne[outboxDoc](ctx, s.outbox, append(byHand(), eq("_id", row.ID)))
		if err != nil {
			return err
		}
		if taken = found != nil; !taken {
			return errUnchanged // another dispatcher was faster
		}
		if err := c.quarantine(eventing.Failure{
			Run: eventing.Run{Delivery: eventing.Delivery{EventID: id, EventType: row.EventType, Payload: payload}},
			Now: r.Now, Attempts: 1, Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, Message: message,
			History: []eventing.Attempt{{
				Attempt: 1, At: r.Now.UTC(), Outcome: "failed", ErrorCode: eventing.ReasonEnvelopeMalformed, ErrorMessage: message,
			}},
			DeadLetterUntil: r.DeadLetterUntil,
		}); err != nil {
			return err
		}
		kept := row
		kept.Aside = eventing.NewID()
		if kept.Seq, err = s.draw(ctx, outboxCounter, 1); err != nil {
			return err
		}
		aside, err := setAside(kept, failed, r.Now)
		c.then(aside, op{Do: doDropByHand, ID: row.ID})
		return err
	})
	return taken, err
}

// maxMessageBytes bounds what a dead letter says, as everywhere: the row's own texts may be
// of any length.
const maxMessageBytes = 1024

func bounded(s string) string {
	if len(s) <= maxMessageBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessageBytes-len("…")], "") + "…"
}
