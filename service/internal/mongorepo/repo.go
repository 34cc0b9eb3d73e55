package mongorepo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
)

// The collections, beside those of [mongostore].
const (
	LedgerCollection   = "processed_events" // Migrate makes it
	shipmentCollection = "active_shipments"
	recordCollection   = "shipment_events"
	deadCollection     = "dead_letter_events" // mongostore's
)

// Repo is the gateway's part of a database. It is safe for concurrent use.
type Repo struct {
	events    *mongostore.Store
	ledger    *mongo.Collection
	shipments *mongo.Collection
	records   *mongo.Collection
	cfg       Config
}

// Config says how long the ledger keeps entries.
type Config struct {
	// Retention of what is processed. It has to be longer than the inbox's: an index removes the entry, whatever else remembers the event.
	Retention time.Duration
	// DeadLetterRetention of what is dead-lettered. It has to be longer than the dead letter's.
	DeadLetterRetention time.Duration
}

// New returns the repositories of a database, next to the library's store.
func New(db *mongo.Database, events *mongostore.Store, cfg Config) *Repo {
	db = db.Client().Database(db.Name(), options.Database().SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
	return &Repo{
		events: events, ledger: db.Collection(LedgerCollection), shipments: db.Collection(shipmentCollection),
		records: db.Collection(recordCollection), cfg: cfg,
	}
}

// index is one of a collection.
type index struct {
	collection string
	name       string
	keys       bson.D
	unique     bool
	sparse     bool          // only of documents that have such a field
	expires    bool          // a document is removed when the time in the field has passed
	grace      time.Duration // and this after it
	only       bson.D        // documents that are like that; nil: all
}

func ascending(fields ...string) (keys bson.D) {
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	return keys
}

// schema is what the gateway adds to the library's indexes. _id is unique by itself, and has what
// the field beside it has.
var schema = []index{
	{collection: LedgerCollection, name: "idempotencyKey_1", keys: ascending("idempotencyKey"), unique: true},
	{collection: LedgerCollection, name: "status_1_updatedAt_1", keys: ascending("status", "updatedAt")},
	{collection: LedgerCollection, name: "expiresAt_1", keys: ascending("expiresAt"), expires: true},
	{collection: LedgerCollection, name: "eventId_1", keys: ascending("eventId")},
	{collection: LedgerCollection, name: "envelopeId_1", keys: ascending("envelopeId")},
	{collection: LedgerCollection, name: "outgoing.at_1", keys: ascending("outgoing.at"), sparse: true},
	{collection: shipmentCollection, name: "shipmentId_1", keys: ascending("shipmentId"), unique: true},
	{collection: shipmentCollection, name: "orderId_1", keys: ascending("orderId")},
	{collection: shipmentCollection, name: "currentState_1_updatedAt_1", keys: ascending("currentState", "updatedAt")},
	{collection: recordCollection, name: "shipmentId_1_processedAt_1", keys: ascending("shipmentId", "processedAt")},
	// The pruner goes first: it also removes what else there is of the event, and an open dead letter it gives up before.
	{collection: deadCollection, name: "expiresAt_1", keys: ascending("expiresAt"), expires: true, grace: 24 * time.Hour, only: bson.D{eq("reviewStatus", string(eventing.StatusClosed))}},
}

// Migrate makes the indexes that are missing, the library's and the gateway's. Where the server has no
// indexes by which documents expire, the sweepers do it alone.
func Migrate(ctx context.Context, db *mongo.Database) error {
	if err := mongostore.Migrate(ctx, db); err != nil {
		return err
	}
	for _, i := range schema {
		_, err := db.Collection(i.collection).Indexes().CreateOne(ctx, i.model())
		if i.expires && unsupported(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("migrate: %s: %w", i, err)
		}
	}
	return nil
}

// Indexes returns the names of the gateway's own indexes, each after its collection's and a dot.
func Indexes() (names []string) {
	for _, i := range schema {
		names = append(names, i.String())
	}
	return names
}

// Expiring returns those of them by which documents expire: not every server has them.
func Expiring() (names []string) {
	for _, i := range schema {
		if i.expires {
			names = append(names, i.String())
		}
	}
	return names
}

func (i index) String() string { return i.collection + "." + i.name }

func (i index) model() mongo.IndexModel {
	o := options.Index().SetName(i.name)
	if i.unique {
		o.SetUnique(true)
	}
	if i.sparse {
		o.SetSparse(true)
	}
	if i.expires {
		o.SetExpireAfterSeconds(int32(i.grace.Seconds()))
	}
	if i.only != nil {
		o.SetPartialFilterExpression(i.only)
	}
	return mongo.IndexModel{Keys: i.keys, Options: o}
}

// unsupported reports whether a server says that it does not have something at all.
func unsupported(err error) bool {
	const notImplemented, commandNotSupported = 238, 115 // https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml
	var command mongo.CommandError
	return errors.As(err, &command) && (command.HasErrorCode(notImplemented) || command.HasErrorCode(commandNotSupported))
}

func eq(field string, value any) bson.E { return bson.E{Key: field, Value: value} }

// in selects what has one of some values: nothing, if there are none.
func in[T any](field string, values []T) bson.E {
	return eq(field, bson.D{eq("$in", append([]T{}, values...))}) // nil would be no array
}
