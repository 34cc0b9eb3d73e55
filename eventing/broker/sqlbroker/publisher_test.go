package sqlbroker_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// inOrder returns the ids of a topic's messages in the order in which they are delivered.
func inOrder(t *testing.T, db *sql.DB, topic string) (ids []string) {
	t.Helper()
	rows, err := db.Query(`SELECT uuid FROM "watermill_` + topic + `" ORDER BY transaction_id, "offset"`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return ids
}

// Also more messages than Postgres takes parameters.
func TestOrderOfACall(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlbroker.PublisherConfig{
		"by default":  {},
		"at once":     {InsertMessages: 100_000},
		"by messages": {InsertMessages: 997},
		"by bytes":    {InsertBytes: 5_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, testserver.PostgresURL(t))
			publish(t, newPublisher(t, db, cfg), numbered(0, 30_000)...)
			wantIDs(t, "messages of a call keep their order", inOrder(t, db, topic), 0, 30_000)
			if n := number(t, db, `SELECT count(DISTINCT transaction_id) FROM watermill_orders`); n != 1 {
				t.Errorf("one call, %d transactions", n)
			}
		})
	}
}

// A goroutine's calls keep their order, whatever others do.
func TestOrderOfCalls(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	var publishing sync.WaitGroup
	for g := range 4 {
		publishing.Go(func() {
			for i := range 100 {
				if err := p.Publish(topic, message.NewMessage(fmt.Sprintf("%d %03d", g, i), nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishing.Wait()
	last := map[byte]string{}
	got := ids(t, subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1})), 400)
	for _, id := range got {
		if id <= last[id[0]] {
			t.Fatalf("%s comes after %s", id, last[id[0]])
		}
		last[id[0]] = id
	}
}

func TestTopicNames(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p, s := newPublisher(t, db, sqlbroker.PublisherConfig{}), newSubscriber(t, db, sqlbroker.SubscriberConfig{})
	for _, bad := range []string{"", "a b", `a"b`, "a'b", "a;b", "ä", "a\x00", "a/b", "offsets_orders", strings.Repeat("x", 46)} {
		_, subscribed := s.Subscribe(t.Context(), bad)
		_, sql := sqlbroker.SchemaSQL(bad)
		for what, err := range map[string]error{
			"publish": p.Publish(bad, numbered(0, 1)...), "subscribe": subscribed, "initialize": s.SubscribeInitialize(bad), "SQL": sql,
			"create": sqlbroker.CreateTopics(t.Context(), db, bad), "batch": p.PublishBatch(t.Context(), []string{bad}, numbered(0, 1)),
		} {
			if err == nil {
				t.Errorf("%s %q: no error", what, bad)
			}
		}
	}
	if _, err := s.SubscribeConsumer(t.Context(), topic, strings.Repeat("x", 256), 1); err == nil {
		t.Error("a group with too long a name: no error")
	}
	for i, good := range []string{"courier-events-main.07", "A$b:c", strings.Repeat("x", 45), strings.Repeat("x", 44) + "y"} {
		if err := p.Publish(good, numbered(i, i+1)...); err != nil {
			t.Error(err)
			continue
		}
		received, err := s.Subscribe(t.Context(), good)
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, good, ids(t, received, 1), i, i+1)
	}
}

// Several topics' messages are all published, or none.
func TestBatch(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{InsertMessages: 7})
	msgs := numbered(0, 100)
	topics := make([]string, len(msgs))
	for i := range msgs {
		topics[i] = []string{"even", "odd"}[i%2]
	}
	if err := p.PublishBatch(t.Context(), topics, msgs); err != nil {
		t.Fatal(err)
	}
	odd := inOrder(t, db, "odd")
	if len(odd) != 50 || !slices.IsSortedFunc(odd, func(a, b string) int { return len(a)*100 + strings.Compare(a, b) - len(b)*100 }) {
		t.Errorf("odd: %v", odd)
	}
	msgs[99].UUID = "not \x00 text"
	err := p.PublishBatch(t.Context(), topics, msgs)
	if err == nil || !strings.Contains(err.Error(), "none are taken") {
		t.Errorf("the error says that none are taken: %v", err)
	}
	if n := len(inOrder(t, db, "even")) + len(inOrder(t, db, "odd")); n != 100 {
		t.Errorf("of a batch that fails, %d messages are there", n-100)
	}
	msgs[3] = nil
	if err := p.PublishBatch(t.Context(), topics, msgs); err == nil {
		t.Error("a message that is nil: no error")
	}
	if err := p.PublishBatch(t.Context(), topics[1:], msgs); err == nil {
		t.Error("a message without a topic: no error")
	}
	if err := p.PublishBatch(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
}

func TestPublishHeedsTheContext(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 1)...)
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("LOCK TABLE watermill_orders"); err != nil {
		t.Fatal(err)
	}
	msgs := numbered(1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	msgs[0].SetContext(ctx)
	if err := p.Publish(topic, msgs...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first message's deadline ends the call, got %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := p.Publish(topic, msgs...); !errors.Is(err, sqlbroker.ErrClosed) {
		t.Errorf("a closed publisher says so, got %v", err)
	}
	if err := p.PublishBatch(t.Context(), []string{topic}, msgs[:1]); !errors.Is(err, sqlbroker.ErrClosed) {
		t.Errorf("a closed publisher says so, got %v", err)
	}
}

// stock returns watermill-sql's own publisher, and its subscriber in our group.
func stock(t *testing.T, db *sql.DB, payloadType string) (*wsql.Publisher, *wsql.Subscriber) {
	t.Helper()
	schema := wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(string) string { return payloadType }}
	p, err := wsql.NewPublisher(wsql.BeginnerFromStdSQL(db), wsql.PublisherConfig{SchemaAdapter: schema, AutoInitializeSchema: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		ConsumerGroup: group, SchemaAdapter: schema, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return p, s
}

// Whoever makes the tables, both read what either publishes, and one's group is the
// other's.
func TestWithWatermillSQL(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]struct{ ours, json bool }{
		"our tables": {ours: true}, "its tables": {}, "its JSON tables": {json: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, testserver.PostgresURL(t))
			payloadType, payload := "BYTEA", "\x00\xffbytes"
			if first.json {
				payloadType, payload = "JSON", `{ "b": 1, "a": "é" }`
			}
			if first.ours {
				if err := sqlbroker.CreateTopics(t.Context(), db, topic); err != nil {
					t.Fatal(err)
				}
			}
			stockPublisher, stockSubscriber := stock(t, db, payloadType)
			withMetadata := func(id string) *message.Message {
				m := message.NewMessage(id, []byte(payload))
				m.Metadata = message.Metadata{"k": "v \" \x01 é", "": "empty"}
				return m
			}
			same := func(got *message.Message, id string) {
				t.Helper()
				if want := withMetadata(id); got.UUID != id || string(got.Payload) != payload || !maps.Equal(got.Metadata, want.Metadata) {
					t.Errorf("%s came as %s %q %v", id, got.UUID, got.Payload, got.Metadata)
				}
				got.Ack()
			}
			if err := stockPublisher.Publish(topic, withMetadata("1"), message.NewMessage("empty", nil)); err != nil {
				t.Fatal(err)
			}
			publish(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), withMetadata("2"), withMetadata("3"), withMetadata("4"))
			ctx, stop := context.WithCancel(t.Context())
			ours, err := newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1}).Subscribe(ctx, topic)
			if err != nil {
				t.Fatal(err)
			}
			same(receive(t, ours), "1")
			if m := receive(t, ours); m.UUID != "empty" || len(m.Payload) != 0 || !m.Ack() {
				t.Errorf("a message without anything came as %s %q", m.UUID, m.Payload)
			}
			same(receive(t, ours), "2")
			stop()
			for range ours { // until it is closed
				continue
			}
			theirs, err := stockSubscriber.Subscribe(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			same(receive(t, theirs), "3")
			same(receive(t, theirs), "4")
			allAcked(t, db)
		})
	}
}

// Subscribers of both kinds in one group lose nothing, and hang on nothing: watermill-sql's has
// the group's position locked while it has messages in hand.
func TestBesideWatermillSQL(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 100)...)
	_, stockSubscriber := stock(t, db, "BYTEA")
	theirs, err := stockSubscriber.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	inHand := receive(t, theirs)
	ours := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1}))
	wantIDs(t, "ours does not wait", ids(t, ours, 50), 0, 50)
	inHand.Ack()
	seen := map[string]bool{inHand.UUID: true}
	for _, id := range uuids(numbered(0, 50)) {
		seen[id] = true
	}
	published := 100
	for len(seen) < 200 {
		if published < 200 {
			publish(t, p, numbered(published, published+1)...)
			published++
		}
		select {
		case m := <-ours:
			seen[m.UUID] = true
			m.Ack()
		case m := <-theirs:
			seen[m.UUID] = true
			m.Ack()
		case <-time.After(20 * time.Second):
			t.Fatalf("%d of 200 messages came", len(seen))
		}
	}
}

// Processes that start at once make the tables at once, watermill-sql's among them.
func TestCreatingRaces(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	var starting sync.WaitGroup
	for i := range 6 {
		db := open(t, dbURL)
		p := newPublisher(t, db, sqlbroker.PublisherConfig{})
		stockPublisher, _ := stock(t, db, "BYTEA")
		starting.Go(func() {
			for n := range 5 {
				name := fmt.Sprintf("topic-%d", n)
				err := p.Publish(name, numbered(0, 1)...)
				if i == 0 {
					err = stockPublisher.Publish(name, numbered(0, 1)...)
				}
				if err == nil {
					err = sqlbroker.CreateTopics(context.Background(), db, name)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	starting.Wait()
}

// A role that may not make tables works with those that somebody else made.
func TestWithoutTheRightToMakeTables(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	owner := open(t, dbURL)
	role := "waybill_test_" + strings.ToLower(rand.Text())
	exec(t, owner, "CREATE ROLE "+role)
	t.Cleanup(func() { exec(t, owner, "DROP OWNED BY "+role); exec(t, owner, "DROP ROLE "+role) })
	exec(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	db := open(t, dbURL+"&role="+role)
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	if err := p.Publish(topic, numbered(0, 1)...); err == nil || !strings.Contains(err.Error(), "SchemaSQL") {
		t.Errorf("the error says what to do: %v", err)
	}
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{}))
	for _, name := range []string{topic, sqlbroker.QuarantineTopic} {
		schema, err := sqlbroker.SchemaSQL(name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, owner, schema)
	}
	exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+role)
	exec(t, owner, "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO "+role)
	publish(t, p, numbered(0, 3)...)
	wantIDs(t, "messages come", ids(t, received, 3), 0, 3)
}

// A publisher's call fails while the server is away, and works when it is back.
func TestPublishAfterRestart(t *testing.T) {
	t.Parallel()
	server := testserver.PrivatePostgres(t)
	db := open(t, server.URL())
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 1)...)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, numbered(1, 2)...); err == nil {
		t.Error("the server is down: no error")
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() error { return p.Publish(topic, numbered(1, 2)...) })
	exec(t, db, "DROP TABLE watermill_orders")
	if err := p.Publish(topic, numbered(2, 3)...); err == nil {
		t.Error("the table is gone: no error")
	}
	publish(t, p, numbered(2, 3)...)
}
