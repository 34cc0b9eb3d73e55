// Package sqlstore is what the SQL stores share: the statements of the state
// model, over a small abstraction of a database. The dialects differ in their
// schema and in a few fragments of the statements.
package sqlstore

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Rows is the result of a query.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close()
}

// Conn runs statements, in a transaction or outside of one.
type Conn interface {
	Exec(ctx context.Context, query string, args ...any) (rowsAffected int64, err error)
	Query(ctx context.Context, query string, args ...any) (Rows, error)
}

// Tx is an open transaction.
type Tx interface {
	Conn
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
	// Raw returns the driver's transaction, which handlers get.
	Raw() any
}

// DB is a database.
type DB interface {
	Conn // for reads
	Begin(ctx context.Context) (Tx, error)
}

// Dialect is how a database differs in its statements.
type Dialect struct {
	Timestamp  string // the type of a point in time
	ForUpdate  string // locks the rows of a SELECT …
	ForShare   string // … against changes …
	SkipLocked string // … or passes over those that are locked
	// In is the condition that a text is in the list that parameter holds, InInts
	// the same for integers. The lists are passed as List and Ints make them.
	In, InInts func(expr, parameter string) string
	List       func(values []string) any
	Ints       func(values []int64) any
	// RowsPerInsert bounds the rows of one INSERT. Positional: its parameters are
	// written "?", for a driver that looks for "$n" by name.
	RowsPerInsert int
	Positional    bool
	// Broken reports whether an error says that the transaction itself cannot go on,
	// rather than that the database cannot be reached.
	Broken func(err error) bool
	// Time encodes a point in time; the zero time is NULL.
	Time func(t time.Time) any
	// LockKeys holds ordering keys, or is nil where there is one writer.
	LockKeys func(ctx context.Context, c Conn, keys []string) error
}

// Store implements all that package eventing asks of a store, but for the
// methods that name the transaction's type.
type Store struct {
	eventing.Waker

	db DB
	d  Dialect

	statements sync.Map // the text with fragments → the text for the dialect
	inserts    sync.Map // how many outbox rows → the statement
}

// New returns a store on a migrated database.
func New(db DB, d Dialect) *Store {
	return &Store{db: db, d: d}
}

// inTx runs fn in a transaction.
func (s *Store) inTx(ctx context.Context, fn func(Tx) error) error {
	return InTx(ctx, s.db, fn)
}

// InTx runs fn in a transaction, commits if it returns nil, and else rolls back
// and returns its error as it is. It rolls back too when fn panics.
func InTx(ctx context.Context, db DB, fn func(Tx) error) (err error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if !done {
			// The caller's context may have ended; the rollback must happen all the same.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_ = tx.Rollback(ctx) // a transaction that cannot be rolled back ends with its connection
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

const rollbackTimeout = 5 * time.Second

// each calls scan for each row.
func each(ctx context.Context, c Conn, query string, args []any, scan func(Rows) error) error {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// one scans the first row; found is false if there is none.
func one(ctx context.Context, c Conn, query string, args []any, dest ...any) (found bool, err error) {
	rows, err := c.Query(ctx, query, args...)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	if rows.Next() {
		found = true
		if err := rows.Scan(dest...); err != nil {
			return false, err
		}
	}
	return found, rows.Err()
}

// list passes strings as one argument.
func (s *Store) list(values []string) any { return s.d.List(values) }

// ints passes small integers as one argument.
func (s *Store) ints(values []int) any {
	list := make([]int64, len(values))
	for i, v := range values {
		list[i] = int64(v)
	}
	return s.d.Ints(list)
}

func (s *Store) time(t time.Time) any { return s.d.Time(t) }

// nullable makes an empty string NULL.
func nullable(v string) any {
	if v == "" {
		return nil
	}
	return v
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

var inList = regexp.MustCompile(`\{(in|in ints) (\S+) (\$\d+)\}`)

// sql fills the dialect's fragments into a statement: {in expr $n}, {in ints expr $n},
// and the names of a Dialect's fields.
func (s *Store) sql(statement string) string {
	if q, ok := s.statements.Load(statement); ok {
		return q.(string)
	}
	q := strings.NewReplacer("{timestamp}", s.d.Timestamp,
		"{for update}", s.d.ForUpdate, "{for share}", s.d.ForShare, "{skip locked}", s.d.SkipLocked).Replace(statement)
	q = inList.ReplaceAllStringFunc(q, func(m string) string {
		parts := inList.FindStringSubmatch(m)
		if parts[1] == "in ints" {
			return s.d.InInts(parts[2], parts[3])
		}
		return s.d.In(parts[2], parts[3])
	})
	s.statements.Store(statement, q)
	return q
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
