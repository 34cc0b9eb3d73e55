//go:build unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// arena is a database and a Redis for one test, with what appends and looks.
type arena struct {
	*testing.T
	storeURL, redisURL string
	topics             string // what their names begin with
	log                string // of all processes
	pool               *pgxpool.Pool
	store              *pgstore.Store
	outbox             *eventing.Outbox[pgx.Tx] // holds a lock on each key until the commit
	redis              *redis.Client
}

// newArena makes an arena on a Redis, or on the one that the tests share.
func newArena(t *testing.T, redisURL string) *arena {
	t.Helper()
	return newArenaOn(t, testserver.PostgresURL(t), redisURL)
}

// newArenaOn makes an arena in an empty database.
func newArenaOn(t *testing.T, storeURL, redisURL string) *arena {
	t.Helper()
	random := eventing.NewID()[24:] // short enough for what tables can be called
	a := &arena{T: t, storeURL: storeURL, redisURL: redisURL, topics: random + ".", log: filepath.Join(t.TempDir(), "log")}
	if redisURL == "" {
		a.redisURL = testserver.RedisURL(t)
	}
	cfg, err := pgxpool.ParseConfig(a.storeURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 60 // many transactions are open at a time
	if a.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.pool.Close)
	if err := pgstore.Migrate(t.Context(), a.pool); err != nil {
		t.Fatal(err)
	}
	a.store = pgstore.New(a.pool)
	a.outbox = eventing.NewOutbox(a.store, eventing.OutboxConfig{SerializeKeys: true})
	options, err := redis.ParseURL(a.redisURL)
	if err != nil {
		t.Fatal(err)
	}
	options.ReadTimeout = time.Minute
	a.redis = redis.NewClient(options)
	t.Cleanup(func() {
		if err := errors.Join(a.redis.Unlink(context.WithoutCancel(t.Context()), a.allStreams()...).Err(), a.redis.Close()); err != nil {
			t.Error(err)
		}
	})
	return a
}

// dispatcher starts a dispatcher.
func (a *arena) dispatcher(s spec) *process {
	a.Helper()
	s.Dispatches = true
	return a.start(s)
}

// start starts a process.
func (a *arena) start(s spec) *process {
	a.Helper()
	s.Store, s.Topics = a.storeURL, a.topics
	if s.Redis == "" {
		s.Redis = a.redisURL
	}
	return start(a.T, s, a.log)
}

// dispatchers starts some, each as the spec says.
func (a *arena) dispatchers(n int, s spec) []*process {
	a.Helper()
	all := make([]*process, n)
	for i := range all {
		all[i] = a.dispatcher(s)
	}
	return all
}

// count returns the only value of a query.
func (a *arena) count(query string, args ...any) (n int) {
	a.Helper()
	if err := a.pool.QueryRow(a.Context(), query, args...).Scan(&n); err != nil {
		a.Fatal(err)
	}
	return n
}

func (a *arena) pending() int {
	a.Helper()
	return a.count(`SELECT count(*) FROM event_outbox WHERE status = 'pending'`)
}

// drained waits until nothing is pending.
func (a *arena) drained(within time.Duration) {
	a.Helper()
	testkit.Eventually(a.T, within, func() error {
		if n := a.pending(); n > 0 {
			return fmt.Errorf("%d events are pending", n)
		}
		return nil
	})
}

// settledOnce checks that all events have been settled, each one once, and that none
// has failed.
func (a *arena) settledOnce() {
	a.Helper()
	if n := a.count(`SELECT count(*) FROM event_outbox WHERE status <> 'sent' OR attempts <> 1`); n > 0 {
		a.Errorf("%d events have not been settled by the first attempt", n)
	}
	if n := a.count(`SELECT count(*) FROM dead_letter_consumers`); n > 0 {
		a.Errorf("there are %d dead letters", n)
	}
}

// shares waits until so many dispatchers share the partitions, each of them with as
// many as from least to most.
func (a *arena) shares(holders, least, most int) {
	a.Helper()
	var shares []int
	testkit.Eventually(a.T, patient, func() error {
		rows, err := a.pool.Query(a.Context(), `
			SELECT count(*) FROM event_leases WHERE scope = $1 AND lease_until > now() GROUP BY holder`, eventing.DispatchScope)
		if err != nil {
			return err
		}
		if shares, err = pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
			return err
		}
		sum, fair := 0, len(shares) == holders
		for _, n := range shares {
			sum += n
			fair = fair && n >= least && n <= most
		}
		if !fair || sum != eventing.Partitions {
			return fmt.Errorf("the dispatchers have %v of %d partitions, want %d to %d each of %d", shares, eventing.Partitions, least, most, holders)
		}
		return nil
	})
}

// keyIn returns the i-th key of a partition that begins with prefix.
func keyIn(partition int, prefix string, i int) string {
	for n := 0; ; n++ {
		key := fmt.Sprint(prefix, ".", i, ".", n)
		if eventing.PartitionOf(key, "") == partition {
			return key
		}
	}
}

// note is the payload of all events.
type note struct{ Text string }

// newEvent returns an event of a type and an ordering key. Alarms and incidents are
// critical.
func newEvent(eventType, key string) eventing.Event[note] {
	e := eventing.New("", "", note{"signed for by a neighbour"})
	e.ID, e.Type, e.OrderingKey = eventing.NewID(), eventType, key
	switch eventType {
	case alarm, incident:
		e.Lane = eventing.Critical
	case held:
		e.Type, e.DueAt = reading, time.Now().Add(time.Hour)
	}
	return e
}
