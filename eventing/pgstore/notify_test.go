package pgstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// otherPool opens a pool on the same database, as another process would.
func otherPool(t *testing.T, d database, configure func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg := d.pool.Config()
	if configure != nil {
		configure(cfg)
	}
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// notice is the payload of these tests.
type notice struct{}

func appendOne(ctx context.Context, s *pgstore.Store) error {
	outbox := eventing.NewOutbox[pgx.Tx](s, eventing.OutboxConfig{})
	return outbox.InTx(ctx, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, eventing.New("", "", notice{})) })
}

// listens has a store listen until the end of the test, and returns when it does.
func listens(t *testing.T, ctx context.Context, l eventing.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	listening, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- l.Listen(ctx, func() { close(listening) }) }()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("listening ends with its context, and without an error: %v", err)
		}
	})
}

func TestAppendsWakeOtherProcesses(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, p *pgxpool.Pool) eventing.DispatchStore{
		"pgx": func(_ *testing.T, p *pgxpool.Pool) eventing.DispatchStore { return pgstore.New(p) },
		"database/sql": func(t *testing.T, p *pgxpool.Pool) eventing.DispatchStore {
			t.Helper()
			db := stdlib.OpenDBFromPool(p)
			t.Cleanup(func() { _ = db.Close() })
			return pgstore.NewSQL(db)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, ctx := take(t), bounded(t)
			other := open(t, otherPool(t, d, nil))
			woken, stop := other.Sleep()
			defer stop()
			listens(t, ctx, other.(eventing.Listener))
			for range 3 {
				if err := appendOne(ctx, pgstore.New(d.pool)); err != nil {
					t.Fatal(err)
				}
				select {
				case <-woken:
				case <-ctx.Done():
					t.Fatal("an append wakes the dispatchers of another process")
				}
			}
		})
	}
}

// ear hears all notifications.
type ear struct {
	t    *testing.T
	ctx  context.Context
	conn *pgx.Conn
}

func newEar(t *testing.T, ctx context.Context, d database) *ear {
	t.Helper()
	conn, err := pgx.ConnectConfig(ctx, d.pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	if _, err := conn.Exec(ctx, `LISTEN waybill_outbox`); err != nil {
		t.Fatal(err)
	}
	return &ear{t, ctx, conn}
}

// heard returns how many notifications there were up to now.
func (e *ear) heard(d database) (n int) {
	e.t.Helper()
	if _, err := d.pool.Exec(e.ctx, `SELECT pg_notify('waybill_outbox', 'up to here')`); err != nil {
		e.t.Fatal(err)
	}
	for {
		heard, err := e.conn.WaitForNotification(e.ctx)
		if err != nil {
			e.t.Fatal(err)
		}
		if heard.Payload == "up to here" {
			return n
		}
		n++
	}
}

func TestNotificationsAreFew(t *testing.T) {
	t.Parallel()
	d, ctx := take(t), bounded(t)
	e, s := newEar(t, ctx, d), pgstore.New(d.pool)
	const writers, each = 4, 250
	began := time.Now()
	var work sync.WaitGroup
	for range writers {
		work.Go(func() {
			for range each {
				if err := appendOne(ctx, s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	n, took := e.heard(d), time.Since(began)
	// One in a transaction, and one for those that came too soon after another.
	if most := 2*int(took/(5*time.Millisecond)) + 2; n < 1 || n > most {
		t.Errorf("a process notifies twice in 5 ms at most: %d times in %v", n, took)
	}
}

func TestARollbackNotifiesNobody(t *testing.T) {
	t.Parallel()
	d, ctx := take(t), bounded(t)
	e, s := newEar(t, ctx, d), pgstore.New(d.pool)
	outbox, errBoom := eventing.NewOutbox[pgx.Tx](s, eventing.OutboxConfig{}), errors.New("boom")
	if err := outbox.InTx(ctx, func(tx pgx.Tx) error {
		return errors.Join(outbox.Append(ctx, tx, eventing.New("", "", notice{})), errBoom)
	}); !errors.Is(err, errBoom) {
		t.Fatal(err)
	}
	if n := e.heard(d); n != 0 {
		t.Errorf("what is rolled back notifies nobody, not %d times", n)
	}
	if err := appendOne(ctx, pgstore.New(d.pool)); err != nil {
		t.Fatal(err)
	}
	if n := e.heard(d); n != 1 {
		t.Errorf("what is committed does, once: %d", n)
	}
}

// foreign hides that its connections are pgx's.
type foreign struct{ driver.Connector }

func (f foreign) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	return struct{ driver.Conn }{c}, err
}

func TestAnotherDriverCannotListen(t *testing.T) {
	t.Parallel()
	d, ctx := take(t), bounded(t)
	db := sql.OpenDB(foreign{stdlib.GetConnector(*d.pool.Config().ConnConfig)})
	defer db.Close()
	listening := func() { t.Error("it does not listen") }
	if err := pgstore.NewSQL(db).Listen(ctx, listening); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("with another driver, listening is unsupported: %v", err)
	}
}

func TestAPoolThatTakesTheNotificationsCannotListen(t *testing.T) {
	t.Parallel()
	d, ctx := take(t), bounded(t)
	p := otherPool(t, d, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	})
	listening := func() { t.Error("it does not listen") }
	if err := pgstore.New(p).Listen(ctx, listening); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("where somebody else takes the notifications, listening is unsupported: %v", err)
	}
}

// deaf has a connection forget at once that it listens, as behind a pooler that gives
// each statement to another one.
type deaf struct{}

type statementKey struct{}

func (deaf) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

func (deaf) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if strings.HasPrefix(ctx.Value(statementKey{}).(string), "LISTEN") {
		_, _ = conn.Exec(ctx, `UNLISTEN *`) // if not, the test fails
	}
}

func deafPool(t *testing.T, d database) *pgxpool.Pool {
	t.Helper()
	return otherPool(t, d, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = deaf{} })
}

func TestNotificationsThatDoNotArriveAreMissed(t *testing.T) {
	t.Parallel()
	d, ctx := take(t), bounded(t)
	err := pgstore.New(deafPool(t, d)).Listen(ctx, func() { t.Error("it does not listen") })
	if err == nil || !strings.Contains(err.Error(), "a notification did not arrive") || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("what was sent and does not arrive is an error that says so: %v", err)
	}
}

// outlet is a broker and a routing table with one topic.
type outlet chan string

func (o outlet) Publish(_ string, msgs ...*message.Message) error {
	for _, m := range msgs {
		o <- m.UUID
	}
	return nil
}

func (outlet) Close() error { return nil }

func (o outlet) Route(string) ([]eventing.Route, bool) {
	r, known := o.Consumer("")
	return []eventing.Route{r}, known
}

func (outlet) Consumer(string) (eventing.Route, bool) {
	return eventing.Route{Consumer: "billing", Topic: "billing"}, true
}

// TestDispatchersHearOfAppends has one find what another process appends: by its
// notifications, so that it need not poll, or where these do not arrive by polling.
func TestDispatchersHearOfAppends(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool func(t *testing.T, d database) *pgxpool.Pool
		poll time.Duration
	}{
		"with notifications": {func(t *testing.T, d database) *pgxpool.Pool { return otherPool(t, d, nil) }, time.Hour},
		"without":            {deafPool, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, ctx, out := take(t), bounded(t), make(outlet, 10)
			dispatcher, err := eventing.NewDispatcher(pgstore.New(c.pool(t, d)), out, out, eventing.DispatcherConfig{
				PollInterval: c.poll, Logger: slog.New(slog.DiscardHandler), Holder: "other",
			})
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			var work sync.WaitGroup
			work.Go(func() { _ = dispatcher.Run(running) })
			defer func() { stop(); work.Wait() }()
			for range 3 {
				if err := appendOne(ctx, pgstore.New(d.pool)); err != nil {
					t.Fatal(err)
				}
				select {
				case <-out:
				case <-ctx.Done():
					t.Fatal("what another process appends is found")
				}
			}
		})
	}
}
