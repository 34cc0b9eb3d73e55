// Package sqlstore is what the SQL stores share: the statements of the state
// model, over a small abstraction of a database. The dialects differ in their
// schema and in a few fragments of the statements.
package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// Begin begins a transaction. One of the store's own, in which nobody waits for anything
	// else, should end by itself if its process does not go on: it holds locks.
	Begin(ctx context.Context, own bool) (Tx, error)
}

// Dialect is how a database differs in its statements.
type Dialect struct {
	Timestamp  string // the type of a point in time
	ForUpdate  string // locks the rows of a SELECT …
	ForShare   string // … against changes …
	SkipLocked string // … or passes over those that are locked
	// Place is the column that says where a row is, Among the condition that it is at one of the places that a SELECT has
	// found and locked: the database goes to these, and does not read the table for it.
	Place string
	Among func(selection string) string
	// ListTable makes a table with a column value of a list of texts, ListOfPairs one with
	// columns n and m of two lists of integers.
	ListTable   func(parameter string) string
	ListOfPairs func(n, m string) string
	// WritingCTE: a WITH clause may change rows.
	WritingCTE bool
	// ClaimPartitions is the SELECT of pending rows, as OutboxColumns and a 3, of the
	// partitions in $1 after the Seq in $2, as many as in $3, that are due by $4, not among
	// those in $5 (a list as IntsText makes it, for each), and NotHeld.
	ClaimPartitions string
	// WholeLimit: ClaimPartitions limits all partitions together. If it finds so many,
	// those of some may be missing.
	WholeLimit bool
	// Writers is the SELECT of the highest Seq drawn, and the names of transactions that may
	// have drawn one up to it and not yet committed; an empty one if there are none.
	Writers string
	// In is the condition that a text is in the list that parameter holds, InInts
	// the same for integers. The lists are passed as List and Ints make them.
	In, InInts func(expr, parameter string) string
	List       func(values []string) any
	Ints       func(values []int64) any
	IntsText   func(values []int64) string
	// AppendMany inserts rows in a way of its own, unless it is nil.
	AppendMany func(ctx context.Context, c Conn, rows []eventing.OutboxRow) error
	// RowsPerInsert bounds the rows of one INSERT. Positional: its parameters are
	// written "?", for a driver that looks for "$n" by name.
	RowsPerInsert int
	Positional    bool
	// Broken reports whether an error says that the transaction itself cannot go on,
	// rather than that the database cannot be reached.
	Broken func(err error) bool
	// Hurry is an integer expression that has the transaction end by itself, from now on, if
	// its process does not go on. Default: 1, which does nothing.
	Hurry string
	// Typed marks errors as ErrSerialization or ErrUnavailable. Default: none.
	Typed func(err error) error
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

	// Announce tells other processes, once the transaction has committed, that there is
	// something to send. Default: nobody.
	Announce func(ctx context.Context, c Conn) error

	claim      string
	statements sync.Map // the text with fragments → the text for the dialect
	inserts    sync.Map // how many outbox rows → the statement
	assertions sync.Map // the text of a step → that of its assertion
}

// New returns a store on a migrated database.
func New(db DB, d Dialect) *Store {
	s := &Store{db: db, d: d}
	s.claim = s.sql(s.claimStatement())
	return s
}

// inTx runs fn in a transaction of the store's own.
func (s *Store) inTx(ctx context.Context, fn func(Tx) error) error {
	return inTx(ctx, s.db, true, fn)
}

// retryTx is inTx for work that may be done again from its beginning: it is, if the
// database has rolled it back because of others.
func (s *Store) retryTx(ctx context.Context, fn func(Tx) error) error {
	return s.retry(ctx, func() error { return s.inTx(ctx, fn) })
}

func (s *Store) retry(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if n == maxTries || !errors.Is(err, eventing.ErrSerialization) || ctx.Err() != nil {
			return err
		}
		pause := time.NewTimer(time.Duration(rand.Int64N(int64(n) * int64(5*time.Millisecond)))) //nolint:gosec // a pause is no secret
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

// maxTries is how often work that collides with others' is tried.
const maxTries = 5

// InTx runs fn in a transaction, commits if it returns nil, and else rolls back
// and returns its error as it is, unless the transaction could not begin. It rolls back too when fn panics.
func InTx(ctx context.Context, db DB, fn func(Tx) error) error {
	return inTx(ctx, db, false, fn)
}

func inTx(ctx context.Context, db DB, own bool, fn func(Tx) error) (err error) {
	tx, err := db.Begin(ctx, own)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	done := false
	defer func() {
		if !done {
			// The caller's context may have ended; the rollback must happen all the same.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RollbackTimeout)
			defer cancel()
			_ = tx.Rollback(ctx) // a transaction that cannot be rolled back ends with its connection
		}
	}()
	if err := fn(tx); err != nil {
		return cmp.Or(beginError(tx), err)
	}
	err = tx.Commit(ctx)
	done = true // it has not panicked, as it may where a statement's arguments are encoded only now
	if err != nil {
		return cmp.Or(beginError(tx), fmt.Errorf("commit: %w", err))
	}
	return nil
}

// beginError returns why a transaction that begins with its first statement could not. It takes the place of the error of whoever made
// that statement, whose fault it was not.
func beginError(tx Tx) error {
	if t, ok := tx.(interface{ BeginError() error }); ok && t.BeginError() != nil {
		return fmt.Errorf("begin: %w", t.BeginError())
	}
	return nil
}

// RollbackTimeout bounds a rollback, which must happen also if the caller's context has ended.
const RollbackTimeout = 5 * time.Second

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

// one scans the only row; found is false if there is none. What goes wrong after the row
// is seen by asking for another.
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
		rows.Next()
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

// nullableBool makes false NULL.
func nullableBool(v bool) any {
	if !v {
		return nil
	}
	return v
}

// nullableInt makes 0 NULL.
func nullableInt(v int64) any {
	if v == 0 {
		return nil
	}
	return v
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

var (
	listTable   = regexp.MustCompile(`\{list (\$\d+)\}`)
	inList      = regexp.MustCompile(`\{(in|in ints) (\S+) (\$\d+)\}`)
	listOfPairs = regexp.MustCompile(`\{list of pairs (\$\d+) (\$\d+)\}`)
)

// sql fills the dialect's fragments into a statement: {in expr $n}, {in ints expr $n},
// {list $n}, {list of pairs $n $n}, and the names of a Dialect's fields.
func (s *Store) sql(statement string) string {
	if q, ok := s.statements.Load(statement); ok {
		return q.(string)
	}
	q := strings.NewReplacer("{timestamp}", s.d.Timestamp, "{hurry}", cmp.Or(s.d.Hurry, "1"),
		"{for update}", s.d.ForUpdate, "{for share}", s.d.ForShare, "{skip locked}", s.d.SkipLocked, "{place}", s.d.Place).Replace(statement)
	q = inList.ReplaceAllStringFunc(q, func(m string) string {
		parts := inList.FindStringSubmatch(m)
		if parts[1] == "in ints" {
			return s.d.InInts(parts[2], parts[3])
		}
		return s.d.In(parts[2], parts[3])
	})
	q = listTable.ReplaceAllStringFunc(q, func(m string) string { return s.d.ListTable(listTable.FindStringSubmatch(m)[1]) })
	q = listOfPairs.ReplaceAllStringFunc(q, func(m string) string {
		parts := listOfPairs.FindStringSubmatch(m)
		return s.d.ListOfPairs(parts[1], parts[2])
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
