package mongostore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}, goleak.Cleanup(testserver.Exit)) }

// tests are the package's, whose client is disconnected before anybody looks for what is left.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	if client != nil {
		_ = client.Disconnect(context.Background())
	}
	return code
}

func TestStore(t *testing.T) {
	t.Parallel()
	b := backend
	if !testkit.Long() {
		b.CrashesPerPoint = 1
	}
	eventingtest.TestStore(t, b)
}

func BenchmarkStore(b *testing.B) { eventingtest.BenchmarkStore(b, backend) }

var backend = eventingtest.Backend[*mongostore.Tx]{
	Open:         func(tb testing.TB) eventingtest.Database[*mongostore.Tx] { return open(tb) },
	Capabilities: eventingtest.Capabilities{ConcurrentWriters: true, BinaryPayload: true},
}

// client is shared by the tests: each has a database of its own.
var (
	client     *mongo.Client
	clientOnce sync.Mutex
)

func openDB(tb testing.TB) *mongo.Database {
	tb.Helper()
	address := testserver.MongoURL(tb)
	slash := strings.LastIndex(address, "/")
	clientOnce.Lock()
	defer clientOnce.Unlock()
	if client == nil {
		var err error
		if client, err = mongo.Connect(options.Client().ApplyURI(address[:slash+1])); err != nil {
			tb.Fatal(err)
		}
	}
	db := client.Database(address[slash+1:])
	tb.Cleanup(func() {
		if err := db.Drop(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("drop the test's database: %v", err)
		}
	})
	return db
}

func open(tb testing.TB) database {
	tb.Helper()
	db := openDB(tb)
	if err := mongostore.Migrate(tb.Context(), db); err != nil {
		tb.Fatal(err)
	}
	return database{mongostore.New(db, mongostore.Config{}), db}
}

// database is what the suite needs to see and do beside the store's methods.
type database struct {
	*mongostore.Store

	db *mongo.Database
}

var lastEffect atomic.Int64

func (database) Effect(_ context.Context, tx *mongostore.Tx, consumer, eventID string) error {
	return tx.Insert("effects", bson.D{
		{Key: "_id", Value: fmt.Sprintf("%019d", lastEffect.Add(1))}, {Key: "consumer", Value: consumer}, {Key: "eventId", Value: eventID},
	})
}

func (d database) Effects(ctx context.Context) ([]eventingtest.Effect, error) {
	return all[eventingtest.Effect](ctx, d.db.Collection("effects"), bson.D{}, "_id")
}

func all[T any](ctx context.Context, c *mongo.Collection, filter bson.D, by string) (docs []T, err error) {
	cursor, err := c.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: by, Value: 1}}))
	if err != nil {
		return nil, err
	}
	return docs, cursor.All(ctx, &docs)
}

func (d database) InsertByHand(ctx context.Context, id, eventID, eventType string, payload []byte) error {
	var text any = string(payload)
	if strings.ToValidUTF8(string(payload), "") != string(payload) {
		text = payload
	}
	_, err := d.db.Collection("event_outbox").InsertOne(ctx, bson.D{
		{Key: "_id", Value: id}, {Key: "eventId", Value: eventID}, {Key: "eventType", Value: eventType}, {Key: "payload", Value: text},
		{Key: "status", Value: "pending"}, {Key: "attempts", Value: 0}, {Key: "createdAt", Value: time.Now()},
	})
	return err
}

// ReplayBySQL does what the documentation has for the shell.
func (d database) ReplayBySQL(ctx context.Context, eventID string) (int, error) {
	events, err := all[bson.M](ctx, d.db.Collection("dead_letter_events"), bson.D{{Key: "_id", Value: eventID}}, "_id")
	if err != nil {
		return 0, err
	}
	for _, e := range events {
		if _, err := d.db.Collection("event_outbox").InsertOne(ctx, bson.M{
			"_id": eventID + "-replay", "eventId": e["eventId"], "eventType": e["eventType"], "payload": e["payload"],
			"status": "pending", "attempts": 0, "createdAt": time.Now(),
		}); err != nil {
			return 0, err
		}
	}
	return len(events), nil
}

type outboxRow struct {
	Status         string
	RoutingVersion string `bson:"routingVersion"`
}

func (d database) rows(ctx context.Context, eventID string) ([]outboxRow, error) {
	return all[outboxRow](ctx, d.db.Collection("event_outbox"), bson.D{{Key: "eventId", Value: eventID}}, "seq")
}

func (d database) OutboxStatus(ctx context.Context, eventID string) (statuses []string, err error) {
	rows, err := d.rows(ctx, eventID)
	for _, r := range rows {
		statuses = append(statuses, r.Status)
	}
	return statuses, err
}

func (d database) RoutingVersions(ctx context.Context, eventID string) (versions []string, err error) {
	rows, err := d.rows(ctx, eventID)
	for _, r := range rows {
		versions = append(versions, r.RoutingVersion)
	}
	return versions, err
}

// Whoever asks about no events gets none.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	s := mongostore.New(openDB(t), mongostore.Config{})
	if rows, err := s.AuditEvents(t.Context(), nil); err != nil || len(rows) > 0 {
		t.Errorf("got %v, %v", rows, err)
	}
}
