package cli_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
	"github.com/waybill-go/waybill/service/internal/shipments"
)

// shelf is what a test does to a database beside everybody.
type shelf interface {
	// payload is that of an event's first row of the outbox.
	payload(t *testing.T, eventID string) []byte
	// settled says that the broker has what is pending.
	settled(t *testing.T, at time.Time)
	// park parks a delivery that is in trouble.
	park(t *testing.T, eventID string)
	// forget removes the rows of an event from the outbox.
	forget(t *testing.T, eventID string)
	// process applies an event, in the transaction of its conclusion.
	process(ctx context.Context, tx any, a courier.Arrival, now time.Time) error
}

type sqlShelf struct {
	environment
	*backend.Backend
}

func (s sqlShelf) payload(t *testing.T, eventID string) (encoded []byte) {
	t.Helper()
	must(t, s.SQL.Read.QueryRowContext(t.Context(), `SELECT payload FROM event_outbox WHERE event_id = $1`, eventID).Scan(&encoded))
	return encoded
}

func (s sqlShelf) settled(t *testing.T, at time.Time) {
	t.Helper()
	s.exec(t, `UPDATE event_outbox SET status = 'sent', sent_at = $1 WHERE status = 'pending'`, s.SQL.Time(at))
}

func (s sqlShelf) park(t *testing.T, eventID string) {
	t.Helper()
	s.exec(t, `UPDATE event_deliveries SET state = 'parked', attempt_history = NULL WHERE event_id = $1`, eventID)
}

func (s sqlShelf) forget(t *testing.T, eventID string) {
	t.Helper()
	s.exec(t, `DELETE FROM event_outbox WHERE event_id = $1`, eventID)
}

func (s sqlShelf) process(ctx context.Context, tx any, a courier.Arrival, now time.Time) error {
	arrivals, projection := []courier.Arrival{a}, shipments.New(s.SQL)
	var err error
	switch tx := tx.(type) {
	case pgx.Tx:
		_, err = shipments.Postgres{Shipments: projection}.Process(ctx, tx, arrivals, now, now.Add(time.Hour))
	case *sql.Tx:
		_, err = shipments.SQLite{Shipments: projection}.Process(ctx, tx, arrivals, now, now.Add(time.Hour))
	}
	return err
}

type mongoShelf struct {
	*mongo.Database
	*backend.Backend
}

// mongoDB is the database of an address.
func mongoDB(t *testing.T, address string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	must(t, err)
	t.Cleanup(func() { must(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	return client.Database(address[strings.LastIndex(address, "/")+1:])
}

func (m mongoShelf) payload(t *testing.T, eventID string) []byte {
	t.Helper()
	var doc struct{ Payload string }
	must(t, m.Collection("event_outbox").FindOne(t.Context(), bson.M{"eventId": eventID}).Decode(&doc))
	return []byte(doc.Payload)
}

func (m mongoShelf) settled(t *testing.T, at time.Time) {
	t.Helper()
	m.update(t, "event_outbox", bson.M{"status": "pending"}, bson.M{"$set": bson.M{"status": "sent", "sentAt": at}})
}

func (m mongoShelf) park(t *testing.T, eventID string) {
	t.Helper()
	m.update(t, mongostore.InboxCollection, bson.M{"eventId": eventID}, bson.M{"$set": bson.M{"delivery.state": "parked", "delivery.history": bson.A{}}})
}

func (m mongoShelf) forget(t *testing.T, eventID string) {
	t.Helper()
	_, err := m.Collection("event_outbox").DeleteMany(t.Context(), bson.M{"eventId": eventID})
	must(t, err)
}

func (m mongoShelf) process(ctx context.Context, tx any, a courier.Arrival, now time.Time) error {
	_, err := m.Shipments.(*mongorepo.Repo).Process(ctx, tx.(*mongostore.Tx), []courier.Arrival{a}, now, now.Add(time.Hour))
	return err
}

func (m mongoShelf) update(t *testing.T, collection string, filter, update bson.M) {
	t.Helper()
	changed, err := m.Collection(collection).UpdateMany(t.Context(), filter, update)
	must(t, err)
	if changed.MatchedCount == 0 {
		t.Fatalf("no document of %s is %v", collection, filter)
	}
}

// eachGateway runs a test on an empty database of each kind.
func eachGateway(t *testing.T, test func(t *testing.T, e environment, b *backend.Backend, s shelf)) {
	for name, address := range map[string]func(*testing.T) string{
		"sqlite":   sqliteURL,
		"postgres": func(t *testing.T) string { return testserver.PostgresURL(t) },
		"mongodb":  func(t *testing.T) string { return testserver.MongoURL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnvironment(t)
			e["STORE_URL"] = address(t)
			e.ok(t, "migrate", "up")
			b, err := backend.Open(t.Context(), e["STORE_URL"], backend.Config{ProcessedTTL: time.Hour, DeadLetterTTL: time.Hour})
			must(t, err)
			t.Cleanup(func() { must(t, b.Close()) })
			if b.SQL != nil {
				test(t, e, b, sqlShelf{e, b})
				return
			}
			test(t, e, b, mongoShelf{mongoDB(t, e["STORE_URL"]), b})
		})
	}
}
