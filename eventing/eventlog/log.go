package eventlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

// Dialect is the kind of database that a log is in.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // 13 or later, a database in UTF-8
	SQLite   Dialect = "sqlite"
)

// Config configures a [Log].
type Config struct {
	// Dialect of the log's database. Required.
	Dialect Dialect
	// Retention says, category by category, how long events are kept: see [Log.Prune]. An event type
	// belongs to one category at most; events of a type of none are kept for ever. Default: all
	// are.
	Retention []eventing.Retention
	// Now is the clock that says when an event was recorded. Default: time.Now.
	Now func() time.Time
}

// Log writes and reads the table events. It has no state but its configuration, and may be
// used by several goroutines.
type Log struct {
	d          dialect
	now        func() time.Time
	categories []*category
}

// New returns a log. The tables come from [Migrations]. It fails on a retention that contradicts
// itself.
func New(cfg Config) (*Log, error) {
	d, ok := dialects[cfg.Dialect]
	if !ok {
		return nil, fmt.Errorf("event log: unknown dialect %q: use eventlog.Postgres or eventlog.SQLite", cfg.Dialect)
	}
	categories, err := compile(cfg.Retention)
	if err != nil {
		return nil, fmt.Errorf("event log: retention: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Log{d, cfg.Now, categories}, nil
}

// Handle records an event, without metadata of one's own. It is the handler of a consumer:
//
//	err := router.HandleTx(r, "event_log", log.Handle, router.On("*"))
//
// The row commits with the consumer's record that the event is processed. Errors are those of
// [Log.Record].
func (l *Log) Handle(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage]) error {
	return l.Record(ctx, tx, e, nil)
}

// Execer runs a statement: a [*sql.Tx], or what has one inside, such as sqlx's. Its results have to say how many rows were
// affected; on Postgres also how many a SELECT selected, as drivers do. On SQLite it should be a [Querier], too: without, an
// event that the log seems to have already is an error, unless its ID is a UUID of another version than 5.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Querier runs a query: a [*sql.DB], a [*sql.Conn] or a [*sql.Tx].
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// dialect is how the databases differ.
type dialect struct {
	// cast makes a parameter one of a type of Postgres.
	cast func(parameter, to string) string
	time func(t time.Time) any
	// storable reports whether the database can hold a JSON document as it is.
	storable func(doc []byte) bool
	// indexed is how the index events_retention has a point in time.
	indexed func(expression string) string
	// mates is the FROM item of the events, as a, of the aggregate of another event, which keeps the planner from
	// any index but idx_events_aggregate: an aggregate has few events, and a table many of a type, or since a time.
	mates func(a, of string) string
	// finds reports whether a query returns a row.
	finds func(ctx context.Context, tx Execer, query *statement) (bool, error)
	// begin and end are what encloses deletions in their transaction.
	begin, end string
}

var dialects = map[Dialect]dialect{
	Postgres: {
		cast:     func(parameter, to string) string { return "CAST(" + parameter + " AS " + to + ")" },
		time:     func(t time.Time) any { return t.UTC().Truncate(time.Microsecond) },
		storable: fitsJSONB,
		indexed:  func(expression string) string { return "(" + expression + " AT TIME ZONE 'UTC')" },
		mates: func(a, of string) string {
			return "LATERAL (SELECT * FROM events " + a + " WHERE " + sameAggregate(a, of) + " OFFSET 0) " + a
		},
		finds: selectsRow,
		begin: `SELECT set_config('waybill.prune_events', 'on', true)`,
	},
	SQLite: {
		cast:     func(parameter, _ string) string { return parameter },
		time:     func(t time.Time) any { return t.UTC().Format(sqlstore.TimeLayout) },
		storable: func([]byte) bool { return true },
		indexed:  func(expression string) string { return expression },
		mates:    func(a, _ string) string { return "events " + a + " INDEXED BY idx_events_aggregate" },
		finds:    queriesRow,
		begin:    `INSERT INTO events_prune (allowed) VALUES (1)`,
		end:      `DELETE FROM events_prune`,
	},
}

// selectsRow goes by the number of rows, which Postgres gives for a SELECT, too: a transaction of
// pgx cannot return sql.Rows.
func selectsRow(ctx context.Context, tx Execer, query *statement) (bool, error) {
	result, err := tx.ExecContext(ctx, query.text(), query.args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

func queriesRow(ctx context.Context, tx Execer, query *statement) (found bool, err error) {
	db, ok := tx.(Querier)
	if !ok {
		return false, fmt.Errorf("whether the log has the event or another one cannot be seen: %T has no QueryContext", tx)
	}
	rows, err := db.QueryContext(ctx, query.text(), query.args...)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return rows.Next(), rows.Err()
}
