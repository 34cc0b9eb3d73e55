package mongostore

import (
	"context"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/eventing"
)

const kept = "kept"

// keeps checks the document that is kept of an event.
func keeps(t *testing.T, s *Store, want string) {
	t.Helper()
	doc, err := findOne[struct {
		Status string `bson:"status"`
	}](t.Context(), s.db.Collection(kept), bson.D{eq("_id", "e")})
	if err != nil || doc == nil || doc.Status != want {
		t.Errorf("what is kept of the event: %+v, %v; want %s", doc, err, want)
	}
}

func updateTo(status string) func(context.Context, any) error {
	return func(_ context.Context, tx any) error { return tx.(*Tx).Update(kept, "e", bson.D{eq("status", status)}) }
}

// What is kept of an event follows its steps, in their order, also if an earlier one's is done late.
func TestUpdate(t *testing.T) {
	t.Parallel()
	s, ctx, now := newStore(t), t.Context(), time.Now()
	if _, err := s.db.Collection(kept).InsertOne(ctx, bson.D{eq("_id", "e"), eq("status", "received")}); err != nil {
		t.Fatal(err)
	}
	d := eventing.Delivery{Consumer: "billing", EventID: "e", EventType: "order.placed", Payload: []byte("{}")}
	_, run, err := s.Arrive(ctx, d, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	failure := eventing.Failure{Run: run, Now: now, State: eventing.StateRetrying, DueAt: now, Attempts: 1, Finish: updateTo("failed")}
	if err := s.Fail(ctx, failure); err != nil {
		t.Fatal(err)
	}
	keeps(t, s, "failed")
	failed, err := findOne[inboxDoc](ctx, s.inbox, bson.D{})
	if err != nil || failed == nil {
		t.Fatal(failed, err)
	}
	due, err := s.Due(ctx, eventing.DueRequest{Consumer: "billing", Now: now, ClaimUntil: now.Add(time.Minute), Limit: 1})
	if err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	if err := s.Succeed(ctx, eventing.Success{Run: due[0], Now: now, InboxUntil: now.Add(time.Hour), Effect: updateTo("processed")}); err != nil {
		t.Fatal(err)
	}
	keeps(t, s, "processed")
	late := op{Do: doUpdate, Collection: kept, ID: "e", Rev: failed.Rev, Document: mustRaw(t, bson.D{eq("status", "failed")})}
	if err := s.redo(ctx, []op{late}); err != nil {
		t.Fatal(err)
	}
	keeps(t, s, "processed")
	none := op{Do: doUpdate, Collection: kept, ID: "none", Rev: failed.Rev, Document: late.Document}
	if err := s.redo(ctx, []op{none}); err != nil {
		t.Fatal(err)
	}
	if n, err := s.db.Collection(kept).CountDocuments(ctx, bson.D{}); n != 1 || err != nil {
		t.Errorf("%d documents, %v; want the one", n, err)
	}
	if err := s.InTx(ctx, func(tx *Tx) error { return updateTo("new")(ctx, tx) }); err == nil {
		t.Error("an update in a transaction of no event: want an error")
	}
}

func mustRaw(t *testing.T, doc any) bson.Raw {
	t.Helper()
	b, err := raw(doc)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Rows that are there stay as they are, and the others come all the same.
func TestAppendOnce(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), t.Context()
	row := func(id string) eventing.OutboxRow {
		return eventing.OutboxRow{ID: id, EventID: id, EventType: "order.placed", Payload: []byte("{}")}
	}
	for _, rows := range [][]eventing.OutboxRow{nil, {row("a"), row("b")}, {row("c"), row("a"), row("d")}, {row("d")}} {
		if err := s.AppendOnce(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	c, err := s.Claim(ctx, eventing.ClaimRequest{Now: time.Now(), Partitions: []eventing.PartitionClaim{{Limit: 10}}})
	if err != nil || len(c.Rows) != 4 || c.Rows[0].ID != "a" || c.Rows[3].ID != "d" {
		t.Errorf("claimed %+v, %v; want a, b, c, d", c.Rows, err)
	}
}

// The document of a dead letter tells of its event what it is told to, and is found by the event's own id.
func TestDeadLetterFields(t *testing.T) {
	t.Parallel()
	s, ctx, now := newStore(t), t.Context(), time.Now()
	s.cfg.DeadLetter = func(e eventing.Envelope) DeadLetterFields {
		return DeadLetterFields{EventID: "theirs", IdempotencyKey: "key of " + e.ID, Payload: []byte(`{"a":1}`)}
	}
	payload := []byte(`{"event_id":"e","event_type":"order.placed","occurred_at":"2026-01-02T03:04:05Z","correlation_id":"e","tenant_id":"","station_id":"","schema_version":1,"payload":{}}`)
	d := eventing.Delivery{Consumer: "billing", EventID: "e", EventType: "order.placed", Payload: payload}
	_, run, err := s.Arrive(ctx, d, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Fail(ctx, eventing.Failure{Run: run, Now: now, State: eventing.StateDead, Reason: "R", Attempts: 1}); err != nil {
		t.Fatal(err)
	}
	event, err := findOne[deadDoc](ctx, s.dead, bson.D{eq("_id", "e")})
	if err != nil || event == nil || event.EventID != "theirs" || event.IdempotencyKey != "key of e" || event.PayloadSnapshot["a"] == nil {
		t.Errorf("the document is %+v, %v", event, err)
	}
	letters, err := s.DeadLetters(ctx, eventing.DeadLetterFilter{EventID: "e"})
	if err != nil || len(letters) != 1 || letters[0].EventID != "e" {
		t.Errorf("the dead letter is %+v, %v", letters, err)
	}
}
