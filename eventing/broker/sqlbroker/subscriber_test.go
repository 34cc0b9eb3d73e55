package sqlbroker_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// A message that is always nacked comes again ever more rarely, and holds up no other.
func TestNackedMessagesWait(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), numbered(0, 50)...)
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{NackDelay: 50 * time.Millisecond, Window: 4}))
	good := 0
	var nacked []time.Time
	for good < 49 || len(nacked) < 5 {
		m := receive(t, received)
		if m.UUID != "0" {
			good++
			m.Ack()
			continue
		}
		nacked = append(nacked, time.Now())
		m.Nack()
	}
	for i, least := range []time.Duration{50, 100, 200, 400} {
		if waited := nacked[i+1].Sub(nacked[i]); waited < least*time.Millisecond {
			t.Errorf("nack %d waits %v, want %d ms", i+1, waited, least)
		}
	}
	if n := number(t, db, unread, group); n != 50 {
		t.Errorf("the group's position is past a message that is not acked: %d are unread", n)
	}
	receive(t, received).Ack()
	allAcked(t, db)
}

func TestNackKeepsOrder(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), numbered(0, 20)...)
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{NackDelay: time.Millisecond, Window: 1}))
	var got []string
	nacked := map[string]bool{}
	for len(got) < 20 {
		m := receive(t, received)
		if m.Metadata.Get("touched") != "" || string(m.Payload) != "payload" {
			t.Error("what a handler did to a message is there when it comes again")
		}
		m.Metadata.Set("touched", "yes")
		m.Payload[0] = 'P'
		if len(got)%3 == 2 && !nacked[m.UUID] {
			nacked[m.UUID] = true
			m.Nack()
			continue
		}
		got = append(got, m.UUID)
		m.Ack()
	}
	wantIDs(t, "in order", got, 0, 20)
}

// What is acked is not delivered again, what is not is, and the group's position passes
// none that is not, also if later ones are acked; whoever comes next, and whether the
// context ends or the subscriber is closed.
func TestEndWithMessagesInHand(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		t.Run(fmt.Sprint("close ", closing), func(t *testing.T) {
			t.Parallel()
			db := open(t, testserver.PostgresURL(t))
			publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), numbered(0, 30)...)
			s := newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 10, CloseTimeout: time.Second})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			received, err := s.Subscribe(ctx, topic)
			if err != nil {
				t.Fatal(err)
			}
			var out []*message.Message
			for range 10 {
				out = append(out, receive(t, received))
			}
			nothing(t, "the window is full", received)
			for _, i := range []int{0, 1, 4, 9} {
				out[i].Ack()
			}
			out[7].Nack()
			testkit.Eventually(t, 10*time.Second, func() error {
				if n := number(t, db, unread, group); n != 28 {
					return fmt.Errorf("%d are unread, want all after the first two", n)
				}
				return nil
			})
			ended := make(chan error, 1)
			if closing {
				go func() { ended <- s.Close() }()
			} else {
				stop()
				ended <- nil
			}
			out[2].Ack() // while it ends
			for m := range received {
				m.Nack() // was on its way
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := number(t, db, unread, group); n != 27 {
				t.Errorf("an ack while it ends counts: %d are unread, want 27", n)
			}
			out[3].Ack() // too late, and does no harm
			next := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1}))
			wantIDs(t, "the next gets all that is not acked", ids(t, next, 27), 3, 30)
		})
	}
}

// One subscriber of a group has a topic at a time; another goes on where it ended.
func TestSubscribersOfAGroupTakeTurns(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 10)...)
	first := newSubscriber(t, db, sqlbroker.SubscriberConfig{})
	a := subscribe(t, first)
	wantIDs(t, "the first", ids(t, a, 10), 0, 10)
	b, c := subscribe(t, first), subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{}))
	publish(t, p, numbered(10, 20)...)
	wantIDs(t, "the first goes on", ids(t, a, 10), 10, 20)
	nothing(t, "another of the same process waits", b)
	nothing(t, "another process waits", c)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	publish(t, p, numbered(20, 30)...)
	wantIDs(t, "another goes on", ids(t, c, 10), 20, 30)
}

func TestConsumersShareATopic(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), numbered(0, 100)...)
	s := newSubscriber(t, db, sqlbroker.SubscriberConfig{})
	for _, consumer := range []string{"ledger", "mail"} {
		received, err := s.SubscribeConsumer(t.Context(), topic, consumer, 1)
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, consumer, ids(t, received, 100), 0, 100)
	}
}

// A lease comes back while who had it before still has a message in hand.
func TestPartitionIsTakenOver(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), numbered(0, 100)...)
	partition := func(s *sqlbroker.Subscriber) (<-chan *message.Message, func()) {
		ctx, stop := context.WithCancel(t.Context())
		received, err := s.SubscribePartition(ctx, topic, group)
		if err != nil {
			t.Fatal(err)
		}
		return received, stop
	}
	s := newSubscriber(t, db, sqlbroker.SubscriberConfig{CloseTimeout: time.Minute})
	received, stop := partition(s)
	got := ids(t, received, 10)
	late := receive(t, received)
	nothing(t, "one at a time", received)
	testkit.Eventually(t, 10*time.Second, func() error {
		if n := number(t, db, unread, group); n != 90 {
			return fmt.Errorf("%d are unread", n)
		}
		return nil
	})
	stop()
	again, stopAgain := partition(newSubscriber(t, db, sqlbroker.SubscriberConfig{}))
	got = append(got, ids(t, again, 40)...)
	late.Ack() // does no harm
	for range received {
		continue
	}
	got = append(got, ids(t, again, 10)...)
	stopAgain()
	third, stopThird := partition(s)
	defer stopThird()
	for len(got) < 100 { // acks of the last 50 ms may not have been told
		m := receive(t, third)
		if !slices.Contains(got, m.UUID) {
			got = append(got, m.UUID)
		}
		m.Ack()
	}
	wantIDs(t, "in order", got, 0, 100)
	allAcked(t, db)
}

// With a message in hand no transaction is open, so nobody else's delivery waits for a
// handler, and handlers can have all connections but one.
func TestHandlersDelayNobody(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	db.SetMaxOpenConns(2)
	p, s := newPublisher(t, db, sqlbroker.PublisherConfig{}), newSubscriber(t, db, sqlbroker.SubscriberConfig{})
	publish(t, p, numbered(0, 1)...)
	inHand := receive(t, subscribe(t, s))
	if n := number(t, db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND (state LIKE 'idle in transaction%' OR backend_xid IS NOT NULL)`); n != 0 {
		t.Error("a transaction is open while a message is in hand")
	}
	other, err := s.Subscribe(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish("other", numbered(0, 1)...); err != nil {
		t.Fatal(err)
	}
	ids(t, other, 1)
	inHand.Ack()
	db.SetMaxOpenConns(1)
	if _, err := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{}); err == nil {
		t.Error("a database with one connection: no error")
	}
}

// What remains: messages wait for every transaction of the server that began to write
// before they were published, in whatever database; and so come in order.
func TestOpenTransactionsDelay(t *testing.T) {
	t.Parallel()
	db, elsewhere := open(t, testserver.PostgresURL(t)), open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 1)...)
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{}))
	ids(t, received, 1)

	ours, theirs := begin(t, db), begin(t, elsewhere)
	if _, err := ours.Exec(`INSERT INTO watermill_orders (uuid, transaction_id) VALUES (1, pg_current_xact_id())`); err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Exec("SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	publish(t, p, numbered(2, 4)...)
	nothing(t, "a transaction that began earlier could still publish", received)
	if err := ours.Commit(); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "what was published first", ids(t, received, 1), 1, 2)
	nothing(t, "one of another database has begun before", received)
	if err := theirs.Rollback(); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "then the rest", ids(t, received, 2), 2, 4)
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// Two ordered consumers and 32 partitions need one connection, idle or busy, and an idle
// subscription writes nothing.
func TestIdleSubscriptionsAreCheap(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	db := open(t, dbURL)
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	pool := open(t, dbURL)
	pool.SetMaxOpenConns(2) // one to make tables
	s := newSubscriber(t, pool, sqlbroker.SubscriberConfig{PollInterval: 100 * time.Millisecond})
	for partition := range 32 {
		name := fmt.Sprintf("orders.%02d", partition)
		if err := p.Publish(name, numbered(0, 10)...); err != nil {
			t.Fatal(err)
		}
		for _, consumer := range []string{"ledger", "mail"} {
			received, err := s.SubscribePartition(t.Context(), name, consumer)
			if err != nil {
				t.Fatal(err)
			}
			wantIDs(t, name, ids(t, received, 10), 0, 10)
		}
	}
	if n := pool.Stats().InUse; n != 1 {
		t.Errorf("%d connections are in use", n)
	}
	const statements = `SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()`
	const unflushed = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL`
	before, written := number(t, db, statements), number(t, db, unflushed)
	<-time.After(2 * time.Second)
	t.Logf("64 idle subscriptions: %d statements in 2 s", number(t, db, statements)-before)
	if written != 0 || number(t, db, unflushed) != 0 {
		t.Error("an idle subscription has a transaction that writes")
	}
}

func TestSubscriberConfig(t *testing.T) {
	t.Parallel()
	db := open(t, "postgres://localhost:1")
	for name, cfg := range map[string]sqlbroker.SubscriberConfig{
		"negative window":   {Window: -1},
		"negative batch":    {Batch: -1},
		"too short a poll":  {PollInterval: 1},
		"too short a wait":  {TakeOverAfter: time.Millisecond},
		"too long a poll":   {TakeOverAfter: time.Second, PollInterval: time.Second},
		"negative delay":    {NackDelay: -1},
		"negative patience": {CloseTimeout: -1},
	} {
		if _, err := sqlbroker.NewSubscriber(db, cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s, err := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Subscribe(t.Context(), topic); err == nil {
		t.Error("no group: no error")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.SubscribeConsumer(t.Context(), topic, group, 1); err == nil {
		t.Error("a closed subscriber: no error")
	}
	if _, err := sqlbroker.NewSubscriber(nil, sqlbroker.SubscriberConfig{}); err == nil {
		t.Error("no database: no error")
	}
	if _, err := sqlbroker.NewPublisher(nil, sqlbroker.PublisherConfig{}); err == nil {
		t.Error("no database: no error")
	}
	for _, cfg := range []sqlbroker.PublisherConfig{{InsertMessages: -1}, {InsertBytes: -1}, {InsertMessages: 1e6}, {InsertBytes: 1 << 30}} {
		if _, err := sqlbroker.NewPublisher(db, cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}
