//go:build unix

package soak

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
)

// depot is a database of either kind and a broker for one test, with what appends,
// operates and looks.
type depot struct {
	*testing.T
	database
	spec    spec // of its processes
	outbox  *eventing.Outbox[*sql.Tx]
	letters *eventing.DeadLetters
	journal *journal
}

func newDepot(t *testing.T, kind, broker string) *depot {
	t.Helper()
	s := spec{Broker: broker, Store: newDatabaseURL(t, kind), Topics: eventing.NewID()[24:] + "."}
	if broker == onRedis {
		s.Redis = sharedRedis(t, s.Topics)
	}
	d, err := openDatabase(t.Context(), s.Store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	for _, table := range depotTables {
		d.exec(t, table)
	}
	return &depot{
		T: t, database: d, spec: s, journal: newJournal(), letters: eventing.NewDeadLetters(d.store),
		outbox: eventing.NewOutbox(d.store, eventing.OutboxConfig{SerializeKeys: true}),
	}
}

// sharedRedis returns the URL of the Redis that tests share, and removes what a test's
// ledger leaves there.
func sharedRedis(t *testing.T, topics string) string {
	t.Helper()
	redisURL := testserver.RedisURL(t)
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() {
		var streams []string
		for partition := range eventing.Partitions {
			streams = append(streams, eventing.PartitionTopic(topics+"ledger", partition))
		}
		if err := errors.Join(client.Unlink(context.WithoutCancel(t.Context()), streams...).Err(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	return redisURL
}

var depotTables = []string{
	`CREATE TABLE places (key text PRIMARY KEY, last bigint NOT NULL)`,
	`CREATE TABLE effects (key text, place bigint, event_id text NOT NULL, worker text NOT NULL, at bigint NOT NULL, PRIMARY KEY (key, place))`,
}

// takePlace has an effect as the ledger has one (see [ledger]), in either dialect, and says
// when by this machine's clock, in microseconds.
func (s spec) takePlace(ctx context.Context, tx *sql.Tx, e eventing.Event[note]) error {
	var place int64
	if err := tx.QueryRowContext(ctx, `
		INSERT INTO places (key, last) VALUES ($1, 1) ON CONFLICT (key) DO UPDATE SET last = places.last + 1 RETURNING last`,
		e.OrderingKey).Scan(&place); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO effects (key, place, event_id, worker, at) VALUES ($1, $2, $3, $4, $5)`,
		e.OrderingKey, place, e.ID, s.Holder, time.Now().UnixMicro())
	return err
}

// timed is an effect, and when its handler had it.
type timed struct {
	landed
	at time.Time
}

// effects returns the effects, those of a key in the order of their commits.
func (d *depot) effects() (all []timed) {
	d.Helper()
	rows, err := d.read.QueryContext(d.Context(), `SELECT key, event_id, worker, at FROM effects ORDER BY key, place`)
	if err != nil {
		d.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e timed
		var at int64
		if err := rows.Scan(&e.key, &e.event, &e.worker, &at); err != nil {
			d.Fatal(err)
		}
		e.at = time.UnixMicro(at)
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		d.Fatal(err)
	}
	return all
}

// judgeEffects checks that each event has its effect once, those of a key in order, and
// returns the effects.
func (d *depot) judgeEffects() (all []timed) {
	d.Helper()
	all = d.effects()
	effects := make([]landed, len(all))
	for i, e := range all {
		effects[i] = e.landed
	}
	for _, wrong := range d.journal.judge(effects) {
		d.Error(wrong)
	}
	return all
}

// append appends an event in a transaction of its own.
func (d *depot) append(key, eventType string) (id string) {
	d.Helper()
	ids, err := appendNoted(d.Context(), d.journal, d.outbox, eventType, []string{key}, false)
	if err != nil {
		d.Fatal(err)
	}
	return ids[0]
}

// replay replays an event's dead letter at the ledger.
func (d *depot) replay(event, why string) {
	d.Helper()
	if err := d.letters.Replay(d.Context(), eventing.Target{EventID: event, Consumer: "ledger"}, "the operator", why); err != nil {
		d.Fatal(err)
	}
}

// left returns how many events are pending or in trouble.
func (d *depot) left() (int, error) {
	events, err := d.texts(d.Context(), `SELECT event_id FROM event_deliveries UNION ALL SELECT event_id FROM event_outbox WHERE status = 'pending'`)
	return len(events), err
}
