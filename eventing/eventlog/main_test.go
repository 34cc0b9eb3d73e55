package eventlog_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

var (
	ctx  = context.Background()
	noon = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
)

// base is a database with the library's tables and the log's.
type base struct {
	dialect eventlog.Dialect
	db      *sql.DB
	store   interface {
		eventing.ConsumerStore
		eventing.OutboxStore[*sql.Tx]
		eventing.AdminStore
		eventing.DeadLetterStore
	}
}

// onEach runs a test on both databases.
func onEach(t *testing.T, test func(t *testing.T, b base)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqliteBase(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresBase(t))
	})
}

func sqliteBase(tb testing.TB) base {
	tb.Helper()
	s, err := sqlitestore.Open(ctx, filepath.Join(tb.TempDir(), "events.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	b := base{eventlog.SQLite, s.DB(), s}
	b.migrate(tb)
	return b
}

func postgresBase(tb testing.TB) base {
	tb.Helper()
	db := postgres(tb, testserver.PostgresURL(tb))
	if _, err := pgstore.Migrations().Up(ctx, db); err != nil {
		tb.Fatal(err)
	}
	b := base{eventlog.Postgres, db, pgstore.NewSQL(db)}
	b.migrate(tb)
	return b
}

func postgres(tb testing.TB, url string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		tb.Fatal(err)
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func (b base) migrate(tb testing.TB) {
	tb.Helper()
	if _, err := eventlog.Migrations(b.dialect).Up(ctx, b.db); err != nil {
		tb.Fatal(err)
	}
}

// log returns a log whose clock stands at noon.
func (b base) log(tb testing.TB, retention ...eventing.Retention) *eventlog.Log {
	tb.Helper()
	l, err := eventlog.New(eventlog.Config{Dialect: b.dialect, Retention: retention, Now: func() time.Time { return noon }})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// record records events, in one transaction.
func (b base) record(tb fataler, l *eventlog.Log, events ...eventing.Envelope) {
	tb.Helper()
	if err := b.inTx(func(tx *sql.Tx) error {
		for _, e := range events {
			if err := l.Record(ctx, tx, e, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
}

// fataler is a test, or a check of package rapid.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func (b base) inTx(fn func(tx *sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (b base) exec(tb fataler, query string, args ...any) {
	tb.Helper()
	if _, err := b.db.ExecContext(ctx, query, args...); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
}

// entries returns what a filter selects.
func (b base) entries(tb fataler, l *eventlog.Log, f eventlog.Filter) (list []eventlog.Entry) {
	tb.Helper()
	for e, err := range l.Each(ctx, b.db, f) {
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// ids of entries, in their order.
func ids(entries []eventlog.Entry) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.ID
	}
	return list
}

// empty deletes all, as the documentation has it done by hand.
func (b base) empty(tb fataler) {
	tb.Helper()
	if err := b.inTx(func(tx *sql.Tx) error {
		statements := []string{`SET LOCAL waybill.prune_events = 'on'`, `DELETE FROM events`}
		if b.dialect == eventlog.SQLite {
			statements = []string{`INSERT INTO events_prune VALUES (1)`, `DELETE FROM events`, `DELETE FROM events_prune`}
		}
		for _, s := range statements {
			if _, err := tx.ExecContext(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
}

// event is an envelope about case 7.
func event(id, eventType string, at time.Time) eventing.Envelope {
	return eventing.Envelope{Header: eventing.Header{
		ID: id, Type: eventType, OccurredAt: at, CorrelationID: id, SchemaVersion: 1, AggregateType: "case", AggregateID: "7",
	}, Payload: []byte(`{}`)}
}
