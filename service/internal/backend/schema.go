package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Step is one of a schema.
type Step struct {
	Name    string
	Applied bool
	// Optional: FerretDB has no such thing, and never will.
	Optional bool
	// AppliedAt is zero if that is not known.
	AppliedAt time.Time
}

// Schema is the schema of a database that may not have been prepared yet.
type Schema interface {
	// Up applies the steps that are missing and returns them.
	Up(ctx context.Context) (applied []string, err error)
	// Status lists the steps, and which of them have been applied.
	Status(ctx context.Context) ([]Step, error)
	Close() error
}

// OpenSchema opens a database, but changes nothing in it. A SQLite file that is missing is made if create says so, and an
// error otherwise. The caller closes the schema.
func OpenSchema(ctx context.Context, address string, create bool) (Schema, error) {
	if isMongo(address) {
		db, err := connect(ctx, address)
		return mongoSchema{db, false}, err
	}
	s, err := store.OpenSchema(ctx, address, create)
	return sqlSchema{s}, err
}

// OpenLibrarySchema is [OpenSchema] for the library's part alone.
func OpenLibrarySchema(ctx context.Context, address string, create bool) (Schema, error) {
	if isMongo(address) {
		db, err := connect(ctx, address)
		return mongoSchema{db, true}, err
	}
	s, err := store.OpenLibrarySchema(ctx, address, create)
	return sqlSchema{s}, err
}

type sqlSchema struct{ *store.Schema }

// Status implements [Schema].
func (s sqlSchema) Status(ctx context.Context) (steps []Step, err error) {
	all, err := s.Schema.Status(ctx)
	for _, m := range all {
		steps = append(steps, Step{Name: m.Name, Applied: !m.AppliedAt.IsZero(), AppliedAt: m.AppliedAt})
	}
	return steps, err
}

// mongoSchema is made of indexes.
type mongoSchema struct {
	db          *mongo.Database
	libraryOnly bool
}

// Up implements [Schema].
func (m mongoSchema) Up(ctx context.Context) ([]string, error) {
	before, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	if m.libraryOnly {
		err = mongostore.Migrate(ctx, m.db)
	} else {
		err = mongorepo.Migrate(ctx, m.db)
	}
	after, statusErr := m.Status(ctx)
	var applied []string
	for i := range after {
		if after[i].Applied && !before[i].Applied {
			applied = append(applied, after[i].Name)
		}
	}
	return applied, errors.Join(err, statusErr)
}

// Status implements [Schema].
func (m mongoSchema) Status(ctx context.Context) (steps []Step, err error) {
	all := mongostore.Indexes()
	if !m.libraryOnly {
		all = append(all, mongorepo.Indexes()...)
	}
	known := map[string]bool{}
	for _, name := range all {
		collection, _, _ := strings.Cut(name, ".")
		if _, asked := known[collection]; asked {
			continue
		}
		known[collection] = true
		there, err := m.db.Collection(collection).Indexes().ListSpecifications(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the indexes of %s: %w", collection, err)
		}
		for _, index := range there {
			known[collection+"."+index.Name] = true
		}
	}
	for _, name := range all {
		steps = append(steps, Step{Name: name, Applied: known[name], Optional: slices.Contains(mongorepo.Expiring(), name)})
	}
	return steps, nil
}

// Close implements [Schema].
func (m mongoSchema) Close() error { return disconnect(m.db) }

// MigrationSQL returns the statements of all steps, in the dialect of the address. It connects to nothing.
func MigrationSQL(address string) (string, error) { return statements(address, store.MigrationSQL) }

// LibrarySQL is [MigrationSQL] for the library's tables alone.
func LibrarySQL(address string) (string, error) { return statements(address, store.LibrarySQL) }

func statements(address string, of func(string) (string, error)) (string, error) {
	if isMongo(address) {
		return "", errors.New("MongoDB has no statements: its schema is made of indexes, which migrate status lists and migrate up makes")
	}
	return of(address)
}
