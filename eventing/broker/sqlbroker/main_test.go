package sqlbroker_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Watermill's suite multiplies subscribers, and stops reading from them.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func2"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func3"),
		goleak.Cleanup(testserver.Exit))
}

const (
	topic = "orders"
	group = "billing"
)

func open(tb testing.TB, dbURL string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("pgx", dbURL)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}

func newPublisher(tb testing.TB, db *sql.DB, cfg sqlbroker.PublisherConfig) *sqlbroker.Publisher {
	tb.Helper()
	p, err := sqlbroker.NewPublisher(db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// newSubscriber returns one that ends with the test, and does not wait long for what the
// test leaves without an ack.
func newSubscriber(tb testing.TB, db *sql.DB, cfg sqlbroker.SubscriberConfig) *sqlbroker.Subscriber {
	tb.Helper()
	if cfg.Group == "" {
		cfg.Group = group
	}
	if cfg.CloseTimeout == 0 {
		cfg.CloseTimeout = 50 * time.Millisecond
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = 10 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := sqlbroker.NewSubscriber(db, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func subscribe(tb testing.TB, s *sqlbroker.Subscriber) <-chan *message.Message {
	tb.Helper()
	received, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		tb.Fatal(err)
	}
	return received
}

func publish(tb testing.TB, p *sqlbroker.Publisher, msgs ...*message.Message) {
	tb.Helper()
	if err := p.Publish(topic, msgs...); err != nil {
		tb.Fatal(err)
	}
}

func numbered(from, to int) []*message.Message {
	var msgs []*message.Message
	for i := from; i < to; i++ {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), message.Payload("payload")))
	}
	return msgs
}

func uuids(msgs []*message.Message) []string {
	var ids []string
	for _, m := range msgs {
		ids = append(ids, m.UUID)
	}
	return ids
}

func receive(tb testing.TB, received <-chan *message.Message) *message.Message {
	tb.Helper()
	select {
	case m, open := <-received:
		if !open {
			tb.Fatal("the subscription has ended")
		}
		return m
	case <-time.After(20 * time.Second):
		tb.Fatal("no message comes")
	}
	return nil
}

// ids receives and acks n messages.
func ids(tb testing.TB, received <-chan *message.Message, n int) []string {
	tb.Helper()
	var got []string
	for range n {
		m := receive(tb, received)
		got = append(got, m.UUID)
		m.Ack()
	}
	return got
}

func wantIDs(tb testing.TB, what string, got []string, from, to int) {
	tb.Helper()
	if want := uuids(numbered(from, to)); !slices.Equal(got, want) {
		tb.Errorf("%s: got %.300v, want %d to %d", what, got, from, to-1)
	}
}

// nothing fails the test if a message comes.
func nothing(tb testing.TB, what string, received <-chan *message.Message) {
	tb.Helper()
	select {
	case m := <-received:
		tb.Errorf("%s: message %s comes", what, m.UUID)
	case <-time.After(200 * time.Millisecond):
	}
}

func exec(tb testing.TB, db *sql.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		tb.Fatalf("%s: %v", statement, err)
	}
}

func number(tb testing.TB, db *sql.DB, query string, args ...any) (n int64) {
	tb.Helper()
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return n
}

const unread = `SELECT count(*) FROM "watermill_orders", (SELECT * FROM "watermill_offsets_orders" WHERE consumer_group = $1) g
	WHERE (transaction_id, "offset") > (last_processed_transaction_id, offset_acked)`

// allAcked waits until the server knows that a group has acked everything.
func allAcked(tb testing.TB, db *sql.DB) {
	tb.Helper()
	testkit.Eventually(tb, 10*time.Second, func() error {
		if n := number(tb, db, unread, group); n > 0 {
			return fmt.Errorf("%d messages are unread", n)
		}
		return nil
	})
}
