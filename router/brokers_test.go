package router_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/router"
)

// serverBroker is a broker on a server.
type serverBroker struct {
	publisher  message.Publisher
	subscriber func() message.Subscriber // one of its own for each worker
	keys       int
	cut        func() // breaks connections; nil: they stay
}

func TestOverRedis(t *testing.T) {
	t.Parallel()
	redisURL := testserver.RedisURL(t)
	publisher, err := redisbroker.NewPublisher(redisClient(t, redisURL), redisbroker.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	overBroker(t, serverBroker{publisher: publisher, keys: 50, subscriber: func() message.Subscriber {
		s, err := redisbroker.NewSubscriber(redisClient(t, redisURL), redisbroker.SubscriberConfig{
			ClaimAfter: time.Second, CloseTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}})
}

func redisClient(t *testing.T, redisURL string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestOverPostgres(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", testserver.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	publisher, err := sqlbroker.NewPublisher(db, sqlbroker.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	overBroker(t, serverBroker{
		publisher: publisher, keys: 20,
		subscriber: func() message.Subscriber {
			s, err := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{
				PollInterval: 50 * time.Millisecond, CloseTimeout: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		cut: func() {
			_, _ = db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		},
	})
}

// overBroker has workers join and leave while events come: each event has its effect once
// at each consumer, and those of a key in their order at the ordered one.
func overBroker(t *testing.T, b serverBroker) {
	t.Helper()
	store, failed, random := memstore.New(), new(sync.Map), testkit.Random(t)
	d, err := eventing.NewDispatcher(store, b.publisher, newRouter(t, store, nil, "routes", failed),
		eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler), PollInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var dispatching sync.WaitGroup
	dispatching.Go(func() { _ = d.Run(ctx) }) // logs its errors
	defer dispatching.Wait()
	defer cancel()

	joined := 0
	join := func() (stop func()) {
		joined++
		return startWorker(t, store, b.subscriber(), fmt.Sprint("worker ", joined), failed)
	}
	workers := []func(){join(), join(), join()}
	defer func() {
		for _, stop := range workers {
			stop()
		}
	}()
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	const each = 20
	effects := func(atLeast int) {
		t.Helper()
		testkit.Eventually(t, 60*time.Second, func() error {
			if n := len(store.List("effects")); n < atLeast {
				return fmt.Errorf("%d effects of %d", n, atLeast)
			}
			return nil
		})
	}
	for i := range each {
		if b.cut != nil {
			effects(b.keys * i) // half of them: the workers are in the middle of it
		}
		for k := range b.keys {
			if err := outbox.InTx(ctx, func(tx *memstore.Tx) error {
				return outbox.Append(ctx, tx, order(fmt.Sprint(k), fmt.Sprintf("%02d-%03d", k, i)))
			}); err != nil {
				t.Fatal(err)
			}
		}
		if b.cut != nil && i%5 == 1 {
			b.cut()
		}
		if i%4 == 3 {
			leaving := random.IntN(len(workers))
			workers[leaving]()
			workers[leaving] = join()
		}
	}
	effects(2 * b.keys * each)
	seen, last := map[string]bool{}, map[string]string{}
	for _, e := range store.List("effects") {
		if seen[e] {
			t.Errorf("%s is twice among the effects", e)
		}
		seen[e] = true
		key, _, _ := strings.Cut(e, "-")
		if strings.HasPrefix(e, "ledger") && e < last[key] {
			t.Errorf("%s comes after %s", e, last[key])
		}
		last[key] = e
	}
	for _, e := range []string{"mail 00-007", "ledger 00-017"} { // failed at first
		if !slices.Contains(store.List("effects"), e) {
			t.Errorf("%s is not among the effects", e)
		}
	}
}

// startWorker runs a router with a subscriber of its own, which stop closes.
func startWorker(t *testing.T, store *memstore.Store, subscriber message.Subscriber, name string, failed *sync.Map) (stop func()) {
	t.Helper()
	r := newRouter(t, store, subscriber, name, failed)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := subscriber.Close(); err != nil {
			t.Error(err)
		}
	})
}

// newRouter has an ordered consumer and one that is not, which share a topic. Some events
// fail at first.
func newRouter(t *testing.T, store *memstore.Store, subscriber message.Subscriber, holder string, failed *sync.Map) *router.Router {
	t.Helper()
	r, err := router.New(router.Config{
		Store: store, Subscriber: subscriber, Holder: holder, LeaseTTL: 500 * time.Millisecond, PollInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	retry := eventing.RetryPolicy{Base: 50 * time.Millisecond}
	for _, c := range []router.Consumer{
		{Name: "ledger", Topic: "orders", Policy: eventing.Policy{Ordered: true, Retry: retry}},
		{Name: "mail", Topic: "orders", Policy: eventing.Policy{Retry: retry}},
	} {
		if err := r.AddConsumer(c); err != nil {
			t.Fatal(err)
		}
		if err := router.HandleTx(r, c.Name, func(_ context.Context, tx *memstore.Tx, e eventing.Event[orderPlaced]) error {
			if _, again := failed.LoadOrStore(c.Name+e.ID, true); !again && strings.HasSuffix(e.ID, "7") {
				return errBusy
			}
			effect(tx, c.Name+" "+e.ID)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}
