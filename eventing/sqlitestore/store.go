// Package sqlitestore keeps outbox, inbox and dead letters in SQLite, with the
// driver modernc.org/sqlite: no C compiler, no server.
//
// A committed transaction survives a loss of power: the journal is a
// write-ahead log that is synced at each commit (synchronous=FULL). SQLite has
// one writer at a time, also among processes.
package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite" // the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Store is a store in one SQLite file. Its transactions are [*sql.Tx] of DB.
type Store struct {
	sqlstore.SQLStore

	read, write  *sql.DB
	checkpointer *checkpointer
}

// Open opens the file, creating it if it is missing, and brings its schema up to
// date. Close the store when done.
func Open(ctx context.Context, path string) (*Store, error) {
	if path == "" || path == ":memory:" {
		return nil, errors.New("open SQLite: a file's path is needed; in memory there is memstore")
	}
	write, err := sql.Open("sqlite", dsn(path, "immediate")+forWriting)
	if err != nil {
		return nil, fmt.Errorf("open SQLite %s: %w", path, err)
	}
	write.SetMaxOpenConns(1) // there is one writer at a time: queue for it here, in order
	read, err := sql.Open("sqlite", dsn(path, "deferred")+"&_pragma=query_only(true)")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite %s: %w", path, err), write.Close())
	}
	read.SetMaxOpenConns(maxReaders)
	read.SetMaxIdleConns(maxReaders)
	copying, err := sql.Open("sqlite", dsn(path, "immediate"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open SQLite %s: %w", path, err), read.Close(), write.Close())
	}
	copying.SetMaxOpenConns(1)
	s := &Store{read: read, write: write, checkpointer: startCheckpointer(copying)}
	if _, err := Migrations().Up(ctx, copying); err != nil { // they may sort more than the writer, in memory, should
		if is(err, sqlite3.SQLITE_CANTOPEN) {
			err = errors.New("unable to open the file: is the folder there, and may this user write in it?")
		}
		return nil, errors.Join(fmt.Errorf("open SQLite %s: %w", path, err), s.Close())
	}
	db := checkpointed{sqlstore.NewSQLDB(read, write, nil), s.checkpointer}
	s.SQLStore = sqlstore.SQLStore{Store: sqlstore.New(db, dialect)}
	return s, nil
}

const maxReaders = 4

// DB returns the database for the application's own statements. It has one
// connection: outside of [Store.InTx], close rows and end transactions before
// the next statement. What SQLite would keep in temporary files it keeps in memory there: give VACUUM, and
// CREATE INDEX on a large table, a connection of their own.
func (s *Store) DB() *sql.DB { return s.write }

// Reader returns a pool of connections that can only read, and do not wait for
// the writer.
func (s *Store) Reader() *sql.DB { return s.read }

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.read.PingContext(ctx) }

// Close closes the file.
func (s *Store) Close() error {
	return errors.Join(s.checkpointer.close(), s.read.Close(), s.write.Close())
}

func dsn(path, lock string) string {
	q := url.Values{"_txlock": {lock}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(true)",
	}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the steps of the schema, which [Open] applies.
func Migrations() sqlstore.Migrations {
	files, _ := fs.Sub(migrations, "migrations") // the folder is compiled in
	return sqlstore.Migrations{Dialect: goose.DialectSQLite3, FS: files, Table: "waybill_schema_version"}
}

var dialect = sqlstore.Dialect{
	Timestamp:     "TEXT",
	Place:         "rowid",
	Among:         func(selection string) string { return "rowid IN (" + selection + ")" },
	RowsPerInsert: 100,
	Positional:    true,
	In:            in,
	InInts:        in,
	List:          func(values []string) any { return asJSON(append([]string{}, values...)) },
	Ints:          func(values []int64) any { return asJSON(append([]int64{}, values...)) },
	IntsText:      func(values []int64) string { return asJSON(append([]int64{}, values...)) },
	Broken:        broken,
	ListTable:     func(parameter string) string { return "json_each(" + parameter + ")" },
	ListOfPairs: func(n, m string) string {
		return "(SELECT a.value AS n, b.value AS m FROM json_each(" + n + ") a JOIN json_each(" + m + ") b ON b.key = a.key)"
	},
	// There is one index, in the order of seq. What is settled leaves it at once.
	WholeLimit: true,
	ClaimPartitions: `SELECT ` + sqlstore.OutboxColumns + `, 3 FROM event_outbox o
WHERE status = 'pending' AND partition IN (SELECT p.value FROM json_each($1) p JOIN json_each($3) n ON n.key = p.key WHERE n.value > 0)
	AND seq > (SELECT min(value) FROM json_each($2))
	AND (due_at IS NULL OR due_at <= $4) AND seq NOT IN (SELECT f.value FROM json_each($5) e, json_each(e.value) f) AND ` + sqlstore.NotHeld + `
ORDER BY seq LIMIT (SELECT coalesce(sum(value), 0) FROM json_each($3))`,
	Writers: `SELECT COALESCE(max(seq), 0) AS drawn, '' AS name FROM event_outbox`, // one at a time
	Time: func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC().Format(sqlstore.TimeLayout)
	},
}

// broken recognises a constraint that fails at the commit, and a transaction that
// somebody else has ended.
func broken(err error) bool {
	return is(err, sqlite3.SQLITE_CONSTRAINT) || errors.Is(err, sql.ErrTxDone)
}

func is(err error, code int) bool {
	var e *sqlite.Error
	const primary = 0xff // the rest is the extended code
	return errors.As(err, &e) && e.Code()&primary == code
}

func in(expr, parameter string) string {
	return expr + " IN (SELECT value FROM json_each(" + parameter + "))"
}

func asJSON(list any) string {
	b, _ := json.Marshal(list) // strings and integers always encode
	return string(b)
}
