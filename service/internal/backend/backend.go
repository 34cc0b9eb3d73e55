// Package backend is the gateway's database, whichever it is: the library's store, and the gateway's
// own repositories beside it.
package backend

import (
	"context"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/life"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Config says how long things are kept.
type Config struct {
	// ProcessedTTL is of the ledger's entries of what is processed.
	ProcessedTTL time.Duration
	// DeadLetterTTL is of dead letters.
	DeadLetterTTL time.Duration
}

// Backend is an open database. The caller closes it.
type Backend struct {
	// Events is the library's part.
	Events store.Library
	// Embedded: a file of this process, not a server.
	Embedded bool
	// SQL is nil on MongoDB.
	SQL       *store.Store
	Ledger    Ledger
	Shipments Shipments
	Lives     Lives
	// InboxTTL is how long the inbox remembers what is processed.
	InboxTTL time.Duration

	// Receiver returns what takes over accepted events.
	Receiver func() intake.Store
	// Register adds the worker to a router.
	Register func(r *router.Router, policy eventing.Policy, w Worker) error
	// Telling returns the library's store, or one that is made of it, as one that appends a row to the outbox for each event that
	// dies at a consumer, in the transaction that opens the dead letter.
	Telling func(events store.Library, row func(eventing.Failure) (eventing.OutboxRow, error)) store.Library
	// PendingAtMost returns how many outbox rows have yet to be sent at most. It costs next to nothing.
	PendingAtMost func(ctx context.Context) (int64, error)
	// Pending counts the outbox rows that have yet to be sent, up to limit or a little more.
	Pending func(ctx context.Context, limit int64) (int64, error)
	// Ping checks that the database answers.
	Ping func(ctx context.Context) error
	// Migrate brings the schema up to date and returns the steps that it applied.
	Migrate func(ctx context.Context) (applied []string, err error)
	// Close closes the database.
	Close func() error
}

// Ledger is what the gateway's parts but intake and worker need of it.
type Ledger interface {
	// Events returns what became of the events that couriers, or one source, call so, with the ids of their envelopes.
	Events(ctx context.Context, eventID, source string) (events []courier.EventStatus, envelopes []string, err error)
	// Names returns what couriers call the events of the given envelopes.
	Names(ctx context.Context, envelopes []string) (map[string]ledger.Name, error)
	// Envelopes returns the envelopes of the events that couriers, or one source, call so.
	Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]ledger.Called, error)
	// Sweep removes at most limit entries that have expired, and returns how many.
	Sweep(ctx context.Context, now time.Time, limit int) (int64, error)
}

// Shipments is the projection.
type Shipments interface {
	// Get returns a shipment; sql.ErrNoRows if it is not known.
	Get(ctx context.Context, shipmentID string) (courier.Shipment, error)
}

// Lives tells what became of events.
type Lives interface {
	// Find returns the events that id names: those that couriers, or one source, call so, the one of that envelope, or else those of that trace.
	Find(ctx context.Context, id, source string, payloads bool) ([]life.Event, error)
}

// Worker configures the worker: see [worker.Worker].
type Worker struct {
	Batch  int
	Tells  bool // of changes of shipments' states
	Logger *slog.Logger
	Now    func() time.Time
}

// Open opens the database of an address, without touching its schema but for a SQLite file's.
func Open(ctx context.Context, address string, cfg Config) (*Backend, error) {
	if isMongo(address) {
		return openMongo(ctx, address, cfg)
	}
	s, err := store.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	return OnSQL(s, cfg), nil
}

// OpenLibrary is [OpenExisting] for a database that may have the library's part alone.
func OpenLibrary(ctx context.Context, address string) (*Backend, error) {
	if isMongo(address) {
		return openExistingMongo(ctx, address, mongostore.InboxCollection, "library", "waybill --store URL migrate up")
	}
	s, err := store.OpenLibrary(ctx, address)
	if err != nil {
		return nil, err
	}
	return OnSQL(s, Config{}), nil
}

// OpenExisting is [Open] for those who work on what others have stored.
func OpenExisting(ctx context.Context, address string) (*Backend, error) {
	if isMongo(address) {
		return openExistingMongo(ctx, address, mongorepo.LedgerCollection, "gateway", "gateway migrate up")
	}
	s, err := store.OpenExisting(ctx, address)
	if err != nil {
		return nil, err
	}
	return OnSQL(s, Config{}), nil
}
