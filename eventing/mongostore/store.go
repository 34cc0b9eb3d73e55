package mongostore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/mongoread"
)

// The collections.
const (
	outboxCollection  = "event_outbox"
	inboxCollection   = InboxCollection
	deadCollection    = "dead_letter_events"
	leaseCollection   = "event_leases"
	commitCollection  = "event_commits"
	keyCollection     = "event_key_locks"
	counterCollection = "event_counters"
	outboxCounter     = "outbox"
	positionCounter   = "position"
	completionTimeout = 30 * time.Second
	maxTries          = 100 // of a change that others overtake
	defaultClaim      = 30 * time.Second
)

// InboxCollection is a collection that [Migrate] makes.
const InboxCollection = "consumer_inbox"

// Store is a store over a MongoDB database, without transactions of the database. Its
// transactions are [*Tx]. It is safe for concurrent use.
type Store struct {
	eventing.Waker

	cfg     Config
	db      *mongo.Database
	outbox  *mongo.Collection
	inbox   *mongo.Collection
	dead    *mongo.Collection
	leases  *mongo.Collection
	commits *mongo.Collection
	keys    *mongo.Collection

	mu    sync.Mutex
	swept time.Time // when it was last looked for what others have left, on the engines' clock
}

var (
	_ eventing.OutboxStore[*Tx] = (*Store)(nil)
	_ eventing.DispatchStore    = (*Store)(nil)
	_ eventing.ConsumerStore    = (*Store)(nil)
	_ eventing.DeadLetterStore  = (*Store)(nil)
	_ eventing.PruneStore       = (*Store)(nil)
	_ eventing.AdminStore       = (*Store)(nil)
)

// Config configures a [Store]. The zero value is good.
type Config struct {
	// DeadLetter says what the document of a dead letter tells of its event beside the library's own fields,
	// for those who read the collection. Default: what the envelope has.
	DeadLetter func(e eventing.Envelope) DeadLetterFields
}

// DeadLetterFields are fields of a document of dead_letter_events, whose _id is the event id of the envelope.
type DeadLetterFields struct {
	EventID        string // eventId
	IdempotencyKey string // idempotencyKey; left out if empty
	// Payload is JSON. It becomes the document payloadSnapshot, if it is an object that every database takes.
	Payload []byte
}

// New returns a store on a database that [Migrate] has prepared. It writes with the concern
// "majority" and reads from the primary, whatever the database's own settings are: a write that
// a failover takes back would take back an event. Whoever made the client disconnects it.
func New(db *mongo.Database, cfg Config) *Store {
	if cfg.DeadLetter == nil {
		cfg.DeadLetter = func(e eventing.Envelope) DeadLetterFields { return DeadLetterFields{e.ID, e.IdempotencyKey, e.Payload} }
	}
	db = db.Client().Database(db.Name(), options.Database().SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary()))
	return &Store{
		cfg: cfg, db: db, outbox: db.Collection(outboxCollection), inbox: db.Collection(inboxCollection), dead: db.Collection(deadCollection),
		leases: db.Collection(leaseCollection), commits: db.Collection(commitCollection),
		keys: db.Collection(keyCollection),
	}
}

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return typed(s.db.Client().Ping(ctx, nil)) }

// indexes are those of a collection. Sparse ones have only the documents that have such a
// field.
type indexes struct {
	collection    string
	plain, sparse []bson.D
}

func ascending(fields ...string) bson.D {
	keys := make(bson.D, len(fields))
	for i, f := range fields {
		keys[i] = bson.E{Key: f, Value: 1}
	}
	return keys
}

var schema = []indexes{
	{outboxCollection, []bson.D{ascending("status", "partition", "seq"), ascending("seq"), ascending("eventId"), ascending("status", "sentAt")}, nil},
	{inboxCollection, []bson.D{ascending("eventId")}, []bson.D{
		ascending("expiresAt"), ascending("delivery.consumer", "delivery.orderingKey", "delivery.position"),
		ascending("delivery.consumer", "delivery.state", "delivery.dueAt"), ascending("redo.at"),
	}},
	{deadCollection, []bson.D{ascending("reviewStatus", "createdAt"), ascending("createdAt"), ascending("consumers.consumer", "consumers.createdAt")}, []bson.D{
		ascending("consumers.holdsKey"), ascending("consumers.scheduledAt"), ascending("consumers.expiresAt"),
	}},
}

// Migrate makes the indexes that the store needs, and the collections with them. What is there stays. It may
// be called by several processes at once, and again. No index removes documents: [eventing.Pruner] does.
//
// If the server is FerretDB 1, it logs a warning: there, updates are not atomic.
func Migrate(ctx context.Context, db *mongo.Database) error {
	for _, c := range schema {
		if err := c.make(ctx, db.Collection(c.collection).Indexes()); err != nil {
			return fmt.Errorf("migrate: indexes of %s: %w", c.collection, typed(err))
		}
	}
	warn(ctx, db)
	return nil
}

// warn warns of a server that does not keep MongoDB's promise on which all here rests. FerretDB 1 finds a document,
// changes it and writes it back, without a lock in between.
func warn(ctx context.Context, db *mongo.Database) {
	var server struct {
		FerretDB string `bson:"ferretdbVersion"` // of version 1
	}
	err := db.RunCommand(ctx, bson.D{eq("buildInfo", 1)}).Decode(&server)
	if err == nil && server.FerretDB != "" {
		slog.WarnContext(ctx, "mongostore: updates are not atomic on this FerretDB: of writers at the same time several can win, and effects can happen twice; "+
			"use MongoDB for anything that matters", "version", server.FerretDB)
	}
}

// make makes those that are missing, one at a time: FerretDB 1 breaks off when of several some are there.
func (i indexes) make(ctx context.Context, view mongo.IndexView) error {
	for n, keys := range slices.Concat(i.plain, i.sparse) {
		o := options.Index().SetName(indexName(keys))
		if n >= len(i.plain) {
			o.SetSparse(true)
		}
		if _, err := view.CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: o}); err != nil {
			return err
		}
	}
	return nil
}

// indexName is as the server would call it.
func indexName(keys bson.D) string {
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%s_%v", k.Key, k.Value)
	}
	return strings.Join(parts, "_")
}

// Indexes returns the names of the indexes that [Migrate] makes, each after its collection's and a dot.
func Indexes() (names []string) {
	for _, c := range schema {
		for _, keys := range slices.Concat(c.plain, c.sparse) {
			names = append(names, c.collection+"."+indexName(keys))
		}
	}
	return names
}

// typed tells what can be told apart with errors.Is.
func typed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case mongo.IsNetworkError(err), mongo.IsTimeout(err), errors.Is(err, mongo.ErrClientDisconnected), mongoread.CursorLost(err):
		return fmt.Errorf("%w: %w", eventing.ErrUnavailable, err)
	}
	return err
}

// find reads all documents that a filter selects.
func find[T any](ctx context.Context, c *mongo.Collection, filter any, opts ...options.Lister[options.FindOptions]) ([]T, error) {
	docs, err := mongoread.All[T](ctx, c, filter, opts...)
	return docs, typed(err)
}

// each reads documents one by one, until fn says that it has enough.
func each[T any](ctx context.Context, c *mongo.Collection, filter any, opts *options.FindOptionsBuilder, fn func(doc T) (more bool, err error)) (err error) {
	cursor, err := c.Find(ctx, filter, opts)
	if err != nil {
		return typed(err)
	}
	defer func() { err = errors.Join(err, typed(cursor.Close(context.WithoutCancel(ctx)))) }()
	for cursor.Next(ctx) {
		var doc T
		if err := cursor.Decode(&doc); err != nil {
			return err
		}
		if more, err := fn(doc); err != nil || !more {
			return err
		}
	}
	return typed(cursor.Err())
}

// findOne reads a document; nil: there is none.
func findOne[T any](ctx context.Context, c *mongo.Collection, filter any, opts ...options.Lister[options.FindOneOptions]) (*T, error) {
	doc, err := mongoread.One[T](ctx, c, filter, opts...)
	return doc, typed(err)
}

// draw takes n numbers of a sequence, and returns the first.
func (s *Store) draw(ctx context.Context, counter string, n int) (int64, error) {
	var doc struct {
		N int64 `bson:"n"`
	}
	ctx = mongo.NewSessionContext(ctx, nil) // a number that is drawn stays so, whatever becomes of a transaction
	err := s.db.Collection(counterCollection).FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: counter}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(n)}}}},
		options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Decode(&doc)
	if mongo.IsDuplicateKeyError(err) { // two were the first
		return s.draw(ctx, counter, n)
	}
	if err != nil {
		return 0, fmt.Errorf("mongostore: draw from %s: %w", counter, typed(err))
	}
	return doc.N - int64(n) + 1, nil
}

// in selects what has one of some values: nothing, if there are none.
func in[T any](field string, values []T) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$in", Value: append([]T{}, values...)}}} // nil would be no array
}

func eq(field string, value any) bson.E { return bson.E{Key: field, Value: value} }

func set(fields any) bson.D { return bson.D{{Key: "$set", Value: fields}} }
