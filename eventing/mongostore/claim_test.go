package mongostore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func delivery(id string) eventing.Delivery {
	return eventing.Delivery{
		Consumer: "billing", EventID: id, EventType: "order.placed", Partition: eventing.PartitionOf("", id),
		Payload: []byte(`{"event_id":"` + id + `","event_type":"order.placed","occurred_at":"2026-01-02T03:04:05Z","correlation_id":"` + id + `",` +
			`"tenant_id":"","station_id":"","schema_version":1,"idempotency_key":"once","payload":{"number":"` + id + `"}}`),
	}
}

func arrive(t *testing.T, db database, d eventing.Delivery, now time.Time) eventing.Run {
	t.Helper()
	decision, run, err := db.Arrive(t.Context(), d, nil, now)
	if err != nil || decision != eventing.DecideRun {
		t.Fatalf("arrive: %s, %v; want run", decision, err)
	}
	return run
}

// success leaves an effect in its transaction, then does something else.
func success(db database, run eventing.Run, now time.Time, then func(ctx context.Context) error) eventing.Success {
	return eventing.Success{
		Run: run, Now: now, InboxUntil: now.Add(time.Hour), ClaimUntil: now.Add(time.Minute),
		Effect: func(ctx context.Context, tx any) error {
			if err := db.Effect(ctx, tx.(*mongostore.Tx), run.Consumer, run.EventID); err != nil || then == nil {
				return err
			}
			return then(ctx)
		},
	}
}

func wantEffects(t *testing.T, db database, want int) {
	t.Helper()
	effects, err := db.Effects(t.Context())
	if err != nil || len(effects) != want {
		t.Errorf("effects: %v, %v; want %d", effects, err, want)
	}
}

// While a handler runs, nobody else runs the event; once its claim has run out, another does, and
// what the first did with its transaction does not happen.
func TestClaim(t *testing.T) {
	t.Parallel()
	db := open(t)
	d := delivery("e1")
	late := start.Add(time.Minute)
	err := db.Succeed(t.Context(), success(db, arrive(t, db, d, start), start, func(ctx context.Context) error {
		soon := start.Add(time.Second)
		if _, _, err := db.Arrive(ctx, d, nil, soon); err == nil {
			t.Error("an event that is being run was neither left alone nor refused")
		}
		if err := db.Succeed(ctx, success(db, eventing.Run{Delivery: d}, soon, nil)); err == nil {
			t.Error("an event that is being run was run once more")
		}
		return db.Succeed(ctx, success(db, arrive(t, db, d, late), late, nil))
	}))
	if !errors.Is(err, eventing.ErrConflict) {
		t.Errorf("a run whose claim was taken over: %v, want ErrConflict", err)
	}
	wantEffects(t, db, 1)
}

// A handler that fails lets go of the event at once; what it has written by itself stays.
func TestDirectWritesStay(t *testing.T) {
	t.Parallel()
	db := open(t)
	d, boom := delivery("e1"), errors.New("boom")
	direct := func(ctx context.Context) error {
		_, err := db.db.Collection("mine").InsertOne(ctx, bson.D{{Key: "event", Value: d.EventID}})
		return err
	}
	fails := func(ctx context.Context) error { return errors.Join(direct(ctx), boom) }
	if err := db.Succeed(t.Context(), success(db, arrive(t, db, d, start), start, fails)); !errors.Is(err, boom) {
		t.Fatal(err)
	}
	wantEffects(t, db, 0)
	if err := db.Succeed(t.Context(), success(db, arrive(t, db, d, start), start, direct)); err != nil {
		t.Fatal(err)
	}
	wantEffects(t, db, 1)
	if n, err := db.db.Collection("mine").CountDocuments(t.Context(), bson.D{}); n != 2 || err != nil {
		t.Errorf("direct writes: %d, %v; want those of both attempts", n, err)
	}
}

// A batch one of whose events has been taken over commits nothing.
func TestBatchTakenOver(t *testing.T) {
	t.Parallel()
	db := open(t)
	late := start.Add(time.Minute)
	b := eventing.BatchSuccess{
		Consumer: "billing", EventIDs: []string{"e1", "e2"}, Now: start, InboxUntil: start.Add(time.Hour), ClaimUntil: late,
		Effect: func(ctx context.Context, tx any) error {
			if err := db.Effect(ctx, tx.(*mongostore.Tx), "billing", "both"); err != nil {
				return err
			}
			return db.Succeed(ctx, success(db, arrive(t, db, delivery("e2"), late), late, nil))
		},
	}
	if err := db.SucceedAll(t.Context(), b); !errors.Is(err, eventing.ErrConflict) {
		t.Errorf("a batch that was taken over: %v, want ErrConflict", err)
	}
	wantEffects(t, db, 1)
	if s, err := db.Stats(t.Context()); err != nil || s.Inbox != 1 {
		t.Errorf("the inbox has %d rows, %v; want that of the other run", s.Inbox, err)
	}
	arrive(t, db, delivery("e1"), start) // its claim is gone
}

func TestTx(t *testing.T) {
	t.Parallel()
	db := open(t)
	var ended *mongostore.Tx
	if err := db.InTx(t.Context(), func(tx *mongostore.Tx) error {
		ended = tx
		if err := tx.Insert("mine", bson.D{{Key: "name", Value: "nobody"}}); err == nil {
			t.Error("a document without an _id was taken")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := ended.Insert("mine", bson.D{{Key: "_id", Value: 1}}); err == nil {
		t.Error("a transaction that has ended takes a document")
	}
	if err := db.AppendRows(t.Context(), open(t).someTx(t), nil); err == nil {
		t.Error("a transaction of another store is taken")
	}
	if _, err := db.SessionTx(t.Context()); err == nil {
		t.Error("SessionTx without a session")
	}
	if err := mongostore.Migrate(t.Context(), db.db); err != nil {
		t.Errorf("migrate again: %v", err)
	}
	if err := db.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func (d database) someTx(t *testing.T) (some *mongostore.Tx) {
	t.Helper()
	if err := d.InTx(t.Context(), func(tx *mongostore.Tx) error { some = tx; return nil }); err != nil {
		t.Fatal(err)
	}
	return some
}

// What the gateway's specification has of a dead letter.
func TestDeadLetterDocument(t *testing.T) {
	t.Parallel()
	db := open(t)
	bury := func(consumer string) {
		d := delivery("e1")
		d.Consumer = consumer
		if err := db.Fail(t.Context(), eventing.Failure{
			Run: arrive(t, db, d, start), Now: start, State: eventing.StateDead, Attempts: 1, Stage: eventing.StageHandle,
			Reason: eventing.ReasonRejected, Message: "no such customer", DeadLetterUntil: start.Add(time.Hour),
			History: []eventing.Attempt{{Attempt: 1, At: start, Outcome: "failed", ErrorCode: eventing.ReasonRejected, ErrorMessage: "no such customer"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (doc struct {
		EventID            string `bson:"eventId"`
		IdempotencyKey     string `bson:"idempotencyKey"`
		TerminalReasonCode string `bson:"terminalReasonCode"`
		AttemptCount       int    `bson:"attemptCount"`
		AttemptHistory     []struct{ Attempt int }
		PayloadSnapshot    bson.M    `bson:"payloadSnapshot"`
		ReviewStatus       string    `bson:"reviewStatus"`
		CreatedAt          time.Time `bson:"createdAt"`
		ExpiresAt          time.Time `bson:"expiresAt"`
	}) {
		if err := db.db.Collection("dead_letter_events").FindOne(t.Context(), bson.D{{Key: "_id", Value: "e1"}}).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	bury("billing")
	bury("mail")
	doc := look()
	if doc.EventID != "e1" || doc.IdempotencyKey != "once" || doc.TerminalReasonCode != "REJECTED" || doc.AttemptCount != 1 ||
		doc.PayloadSnapshot["number"] != "e1" || doc.ReviewStatus != "pending" || !doc.CreatedAt.Equal(start) || !doc.ExpiresAt.Equal(start.Add(time.Hour)) {
		t.Errorf("the document is %+v", doc)
	}
	for i, consumer := range []string{"billing", "mail"} {
		act := eventing.Act{Act: "discarded", By: "ann", At: start}
		if err := db.Discard(t.Context(), eventing.Target{EventID: "e1", Consumer: consumer}, act); err != nil {
			t.Fatal(err)
		}
		doc, want := look(), []string{"pending", "closed"}[i]
		if until := start.Add(eventing.ActRetention); doc.ReviewStatus != want || !doc.ExpiresAt.Equal(until) {
			t.Errorf("after %d discards: %s, expires at %v; want %s, %v", i+1, doc.ReviewStatus, doc.ExpiresAt, want, until)
		}
	}
}
