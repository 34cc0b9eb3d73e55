package transactions

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/router"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit),
		// GORM never ends what expires its prepared statements.
		goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type shop interface {
	place(ctx context.Context, number, gift string) error
}

type store interface {
	eventing.DispatchStore
	eventing.ConsumerStore
	Sleep() (woken <-chan struct{}, stop func())
}

var libraries = map[string]func(t *testing.T, url string) (shop, store){
	"pgx": func(t *testing.T, url string) (shop, store) {
		s := newPgxShop(openPool(t, url))
		return s, s.store
	},
	"database/sql": func(t *testing.T, url string) (shop, store) {
		s := newSQLShop(openSQL(t, url))
		return s, s.store
	},
	"sqlx": func(t *testing.T, url string) (shop, store) {
		s := newSQLXShop(sqlx.NewDb(openSQL(t, url), "pgx"))
		return s, s.store
	},
	"GORM": func(t *testing.T, url string) (shop, store) {
		s := openGORM(t, url, false)
		return s, s.store
	},
	"GORM with PrepareStmt": func(t *testing.T, url string) (shop, store) {
		s := openGORM(t, url, true)
		return s, s.store
	},
	"bun": func(t *testing.T, url string) (shop, store) {
		s := newBunShop(bun.NewDB(openSQL(t, url), pgdialect.New()))
		return s, s.store
	},
}

func TestLibraries(t *testing.T) {
	t.Parallel()
	for name, open := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, url := database(t)
			s, st := open(t, url)

			woken, stop := st.Sleep()
			defer stop()
			placed(t, s, "1", "mug")
			select {
			case <-woken: // before place has returned
			default:
				t.Error("place did not wake the dispatchers after its commit")
			}
			placed(t, s, "2", "")
			placed(t, s, "3", "mug") // which is taken: only the savepoint is undone
			want := contents{
				orders: []string{"1", "2", "3"}, gifts: []string{"1 mug"},
				events: []string{"GiftReserved 1 mug", "OrderPlaced 1", "OrderPlaced 2", "OrderPlaced 3"},
			}
			want.check(t, pool)

			// Whatever fails, and when, leaves neither rows nor events.
			var invalid *eventing.InvalidEventError
			if err := s.place(t.Context(), strings.Repeat("4", 1000), "cap"); !errors.As(err, &invalid) {
				t.Errorf("Append of an event that is not valid: got %v", err)
			}
			if code := sqlState(s.place(t.Context(), "5", "a gift with a long name")); code != "22001" {
				t.Errorf("a statement after Append: got SQLSTATE %q, want that of a text that is too long", code)
			}
			if code := sqlState(s.place(t.Context(), "2", "cap")); code != "23505" {
				t.Errorf("the commit: got SQLSTATE %q, want that of a number that is taken", code)
			}
			want.check(t, pool)

			if got := consume(t, st, len(want.events)); !slices.Equal(got, want.events) {
				t.Errorf("consumed %q, want %q", got, want.events)
			}
		})
	}
}

func placed(t *testing.T, s shop, number, gift string) {
	t.Helper()
	if err := s.place(t.Context(), number, gift); err != nil {
		t.Fatalf("place order %s: %v", number, err)
	}
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// contents of a database, sorted.
type contents struct{ orders, gifts, events []string }

func (want contents) check(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for _, c := range []struct {
		query string
		want  []string
	}{
		{`SELECT number FROM orders ORDER BY 1`, want.orders},
		{`SELECT number || ' ' || name FROM gifts ORDER BY 1`, want.gifts},
		{
			`SELECT concat_ws(' ', event_type, payload::jsonb -> 'payload' ->> 'Number', payload::jsonb -> 'payload' ->> 'Gift')
			FROM event_outbox ORDER BY 1`, want.events,
		},
	} {
		rows, err := pool.Query(t.Context(), c.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v; want %q", c.query, got, err, c.want)
		}
	}
}

// consume runs a dispatcher, a broker and a consumer until n events have been handled
// and all that was sent is settled, and returns them, sorted.
func consume(t *testing.T, st store, n int) (handled []string) {
	t.Helper()
	events := make(chan string, n+1)
	broker := inproc.New(inproc.Config{})
	r, err := router.New(router.Config{Store: st, Subscriber: broker})
	dispatcher, err2 := eventing.NewDispatcher(st, broker, r, eventing.DispatcherConfig{})
	err3 := router.Handle(r, "mail", func(_ context.Context, e eventing.Event[OrderPlaced]) error {
		events <- "OrderPlaced " + e.Payload.Number
		return nil
	})
	err4 := router.Handle(r, "mail", func(_ context.Context, e eventing.Event[GiftReserved]) error {
		events <- "GiftReserved " + e.Payload.Number + " " + e.Payload.Gift
		return nil
	})
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	consuming, stopConsuming := context.WithCancel(t.Context())
	dispatching, stopDispatching := context.WithCancel(t.Context())
	consumed, dispatched := make(chan error, 1), make(chan error, 1)
	go func() { consumed <- r.Run(consuming) }()
	go func() { dispatched <- dispatcher.Run(dispatching) }()
	deadline := time.After(30 * time.Second)
	for len(handled) < n {
		select {
		case e := <-events:
			handled = append(handled, e)
		case <-deadline:
			t.Errorf("after 30 s got only %q", handled)
			n = 0
		}
	}
	stopConsuming()
	err = errors.Join(<-consumed, broker.Close())
	stopDispatching()
	if err := errors.Join(err, <-dispatched); err != nil {
		t.Error(err)
	}
	slices.Sort(handled)
	return handled
}

// database returns a new database with Waybill's tables and those of the shop.
func database(t *testing.T) (pool *pgxpool.Pool, url string) {
	t.Helper()
	url = testserver.PostgresURL(t)
	pool = openPool(t, url)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	return pool, url
}

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, db)
	return db
}

func closeAtEnd(t *testing.T, db *sql.DB) {
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
