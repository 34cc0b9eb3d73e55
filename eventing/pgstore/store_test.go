package pgstore_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/eventingtest"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/sqltest"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}, goleak.Cleanup(testserver.Exit)) }

func TestStore(t *testing.T) {
	t.Parallel()
	b := backend
	b.CrashesPerPoint = crashesPerPoint()
	eventingtest.TestStore(t, b)
}

// crashesPerPoint is 0, all, in the long form.
func crashesPerPoint() int {
	if testkit.Long() {
		return 0
	}
	return 2
}

func TestSQLStore(t *testing.T) {
	t.Parallel()
	eventingtest.TestStore(t, eventingtest.Backend[*sql.Tx]{
		Open:            func(tb testing.TB) eventingtest.Database[*sql.Tx] { return openSQL(tb) },
		Capabilities:    backend.Capabilities,
		CrashesPerPoint: crashesPerPoint(),
	})
}

func BenchmarkStore(b *testing.B) { eventingtest.BenchmarkStore(b, backend) }

var backend = eventingtest.Backend[pgx.Tx]{
	Open:         func(tb testing.TB) eventingtest.Database[pgx.Tx] { return open(tb) },
	Capabilities: eventingtest.Capabilities{ConcurrentWriters: true},
}

// database is an empty database with its schema. Making one costs much more than
// emptying it, so tests hand it on.
type database struct {
	pool *pgxpool.Pool
	db   *sql.DB
}

var (
	mu   sync.Mutex
	free []database
)

func take(tb testing.TB) database {
	tb.Helper()
	mu.Lock()
	var d database
	if n := len(free); n > 0 {
		d, free = free[n-1], free[:n-1]
	}
	mu.Unlock()
	if d.pool == nil {
		d = create(tb)
	}
	tb.Cleanup(func() {
		if _, err := d.pool.Exec(context.Background(), empty); err != nil {
			tb.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		free = append(free, d)
	})
	return d
}

const empty = `TRUNCATE event_outbox, processed_events, event_deliveries, dead_letter_consumers, dead_letter_events, event_leases, event_lease_holders, effects RESTART IDENTITY`

func create(tb testing.TB) database {
	tb.Helper()
	return prepare(tb, testserver.KeptPostgresURL(tb))
}

// prepare makes the schema.
func prepare(tb testing.TB, url string) database {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	cfg.MaxConns = 8
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := pgstore.Migrate(context.Background(), p); err != nil {
		tb.Fatal(err)
	}
	// Not by ctid: what is inserted at once goes to several pages.
	for _, statement := range []string{sqltest.EffectTable, `ALTER TABLE effects ADD COLUMN seq bigint GENERATED ALWAYS AS IDENTITY`} {
		if _, err := p.Exec(context.Background(), statement); err != nil {
			tb.Fatal(err)
		}
	}
	return database{p, stdlib.OpenDBFromPool(p)}
}

// tests close what they shared before goroutines are counted.
type tests struct{ *testing.M }

func (t tests) Run() int {
	code := t.M.Run()
	for _, d := range free {
		_ = d.db.Close() // the pool is closed next
		d.pool.Close()
	}
	return code
}

func open(tb testing.TB) sqltest.Database[pgx.Tx] {
	tb.Helper()
	d := take(tb)
	return sqltest.Database[pgx.Tx]{
		Store: pgstore.New(d.pool), DB: d.db, Order: "seq",
		InsertIn: func(ctx context.Context, tx pgx.Tx, consumer, eventID string) error {
			_, err := tx.Exec(ctx, sqltest.InsertEffect, consumer, eventID)
			return err
		},
	}
}

func openSQL(tb testing.TB) sqltest.Database[*sql.Tx] {
	tb.Helper()
	d := take(tb)
	return sqltest.Database[*sql.Tx]{
		Store: pgstore.NewSQL(d.db), DB: d.db, Order: "seq",
		InsertIn: func(ctx context.Context, tx *sql.Tx, consumer, eventID string) error {
			_, err := tx.ExecContext(ctx, sqltest.InsertEffect, consumer, eventID)
			return err
		},
	}
}
