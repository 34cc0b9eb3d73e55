package cli_test

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/backend"
)

// What on SQL one transaction does is told on MongoDB also while a part of it is still to be written.
func TestTraceOfWhatIsHalfWritten(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"] = testserver.MongoURL(t)
	e.ok(t, "migrate", "up")
	b, err := backend.Open(t.Context(), e["STORE_URL"], backend.Config{ProcessedTTL: time.Hour, DeadLetterTTL: time.Hour})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	db := mongoDB(t, e["STORE_URL"])
	l := life{t, e, b, mongoShelf{db, b}}
	expect := func(id, steps, standing string, payload bool) {
		t.Helper()
		got := object[traced](t, e, "trace", id, "--payload")
		if got.steps(t, 0) != steps || got.Events[0].Standing != standing || (got.Events[0].Payload != nil) != payload {
			t.Errorf("%s: got %+v; want %s, %s", id, got, steps, standing)
		}
	}

	// The intake has entered it, and the outbox is yet to get it.
	entered := l.accept("entered", "courier-x")
	encoded := l.shelf.payload(t, entered.ID)
	l.shelf.forget(t, entered.ID)
	mongoShelf{db, b}.update(t, "processed_events", bson.M{"eventId": "entered"}, bson.M{"$set": bson.M{"outgoing": bson.M{"at": time.Now(), "payload": encoded}}})
	expect("entered", "accepted", "pending", true)

	// It has died, and its dead letter is yet to be written.
	died := l.accept("died", "courier-x")
	l.settled(time.Hour)
	l.fails(died, 0, eventing.StateDead)
	_, err = db.Collection("dead_letter_events").DeleteOne(t.Context(), bson.M{"_id": died.ID})
	must(t, err)
	expect("died", "accepted sent appended attempt", "dead", true)

	// It was sent again by hand, and there is nothing to run.
	_, err = db.Collection("event_outbox").InsertOne(t.Context(), bson.M{
		"_id": "aside", "eventId": died.ID, "eventType": "scan", "payload": "", "status": "sent", "createdAt": time.Now(), "sentAt": time.Now(), "seq": int64(99),
	})
	must(t, err)
	expect("died", "accepted sent appended attempt appended aside", "dead", true)
}
