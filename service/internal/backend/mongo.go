package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/life"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
	"github.com/waybill-go/waybill/service/internal/store"
)

func isMongo(address string) bool {
	return strings.HasPrefix(address, "mongodb://") || strings.HasPrefix(address, "mongodb+srv://")
}

// Times of MongoDB's driver, unless the address says others.
const (
	mongoSelection = 5 * time.Second
	mongoConnect   = 5 * time.Second
	closeTimeout   = 5 * time.Second
)

// connect connects to a server, which has to answer.
func connect(ctx context.Context, address string) (*mongo.Database, error) {
	parsed, err := connstring.ParseAndValidate(address)
	if unknown := (*net.DNSError)(nil); errors.As(err, &unknown) { // of mongodb+srv, which is looked up
		return nil, fmt.Errorf("the database %q (STORE_URL): %w", store.Masked(address), unknown)
	}
	if err != nil || store.Unescaped(address) || parsed.Database == "" { // what the parser says may have the password in it
		return nil, fmt.Errorf("the database %q: %w, as in mongodb://user:password@host:27017/waybill, special characters of the password as %%XX",
			store.Masked(address), store.ErrAddress)
	}
	o := options.Client().ApplyURI(address)
	if !parsed.ServerSelectionTimeoutSet {
		o.SetServerSelectionTimeout(mongoSelection)
	}
	if !parsed.ConnectTimeoutSet {
		o.SetConnectTimeout(mongoConnect)
	}
	client, err := mongo.Connect(o)
	if err != nil {
		return nil, fmt.Errorf("the database %q (STORE_URL): %w", store.Masked(address), err)
	}
	db := client.Database(parsed.Database)
	if err := client.Ping(ctx, nil); err != nil {
		return nil, errors.Join(fmt.Errorf("the database %q (STORE_URL) does not answer: %w", store.Masked(address), err), disconnect(db))
	}
	return db, nil
}

func disconnect(db *mongo.Database) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return db.Client().Disconnect(ctx)
}

func openMongo(ctx context.Context, address string, cfg Config) (*Backend, error) {
	db, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	return onMongo(db, cfg), nil
}

// openExistingMongo fails on a database without a collection, which a command makes.
func openExistingMongo(ctx context.Context, address, collection, whose, command string) (*Backend, error) {
	db, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	names, err := db.ListCollectionNames(ctx, bson.D{{Key: "name", Value: collection}})
	if err == nil && len(names) == 0 {
		err = errors.New("no such collection: " + collection)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the database %q has none of the %s's collections; make them with: %s: %w", store.Masked(address), whose, command, err), disconnect(db))
	}
	return onMongo(db, Config{}), nil
}

// inboxLess is how much earlier the inbox forgets than the ledger, whose index removes entries whatever else
// remembers the event: or else an event could be accepted anew and not be run.
func inboxLess(ttl time.Duration) time.Duration { return min(ttl/10, 24*time.Hour) }

func onMongo(db *mongo.Database, cfg Config) *Backend {
	events := mongostore.New(db, mongostore.Config{DeadLetter: deadLetterFields})
	repo := mongorepo.New(db, events, mongorepo.Config{
		Retention: cfg.ProcessedTTL, DeadLetterRetention: max(cfg.ProcessedTTL, cfg.DeadLetterTTL) + 24*time.Hour,
	})
	return &Backend{
		Events: events, Ledger: repo, Shipments: repo, Lives: life.NewMongo(db, events, repo), InboxTTL: cfg.ProcessedTTL - inboxLess(cfg.ProcessedTTL),
		Receiver: repo.Receiver, PendingAtMost: events.PendingAtMost, Pending: events.Pending, Ping: events.Ping,
		Migrate: mongoSchema{db, false}.Up,
		Close:   func() error { return disconnect(db) },
		Register: func(r *router.Router, policy eventing.Policy, w Worker) error {
			return register(r, policy, w, repo, repo, events)
		},
		Telling: tellWith[*mongostore.Tx],
	}
}

// deadLetterFields are those of the courier's event, where the envelope has one.
func deadLetterFields(e eventing.Envelope) mongostore.DeadLetterFields {
	fields := mongostore.DeadLetterFields{EventID: e.ID, IdempotencyKey: e.IdempotencyKey, Payload: e.Payload}
	var of courier.Event
	if json.Unmarshal(e.Payload, &of) == nil && of.EventID != "" {
		fields.EventID, fields.IdempotencyKey, fields.Payload = of.EventID, of.IdempotencyKey, of.Payload
	}
	return fields
}
