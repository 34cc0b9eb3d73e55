package sqlbroker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// missing publishes n messages one by one, as long as that takes, and returns which of them
// the subscription has not brought in the end. A call that fails is made again.
func missing(t *testing.T, p *sqlbroker.Publisher, received <-chan *message.Message, n int, meanwhile func(published int)) (lost []string, firsts []string) {
	t.Helper()
	var publishing sync.WaitGroup
	defer publishing.Wait()
	publishing.Go(func() {
		for i := range n {
			for p.Publish(topic, numbered(i, i+1)...) != nil {
				if t.Context().Err() != nil {
					return
				}
			}
			meanwhile(i)
		}
	})
	seen := map[string]bool{}
	for len(seen) < n {
		select {
		case m := <-received:
			if !seen[m.UUID] {
				seen[m.UUID] = true
				firsts = append(firsts, m.UUID)
			}
			m.Ack()
		case <-time.After(30 * time.Second):
			for _, id := range uuids(numbered(0, n)) {
				if !seen[id] {
					lost = append(lost, id)
				}
			}
			return lost, firsts
		}
	}
	return nil, firsts
}

// The server is killed, and stopped, in the middle: nothing is lost, and both go on by
// themselves.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	server := testserver.PrivatePostgres(t)
	db := open(t, server.URL())
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1}))
	lost, firsts := missing(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), received, 400, func(published int) {
		stop := map[int]func() error{100: server.Kill, 250: server.Stop}[published]
		if stop == nil {
			return
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := server.Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if lost != nil {
		t.Errorf("%d messages are lost: %v", len(lost), lost)
	}
	wantIDs(t, "in order", firsts, 0, 400)
	allAcked(t, db)
}

// Connections are cut again and again: nothing is lost, and order is kept.
func TestConnectionsAreCut(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1}))
	cuts := 0
	lost, firsts := missing(t, newPublisher(t, db, sqlbroker.PublisherConfig{}), received, 500, func(published int) {
		if published%50 == 25 {
			cuts++
			_, _ = db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		}
	})
	if lost != nil {
		t.Errorf("%d messages are lost: %v", len(lost), lost)
	}
	wantIDs(t, fmt.Sprintf("in order over %d cuts", cuts), firsts, 0, 500)
	allAcked(t, db)
}

// A subscriber that is cut off, with a message in hand, is succeeded by another; when it is
// back it stands by, and the message that it acks then has come to the other.
func TestTakeOverFromTheSilent(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	db := open(t, dbURL)
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 10)...)
	proxy := testkit.StartProxy(t, dbURL)
	silent := subscribe(t, newSubscriber(t, open(t, proxy.URL()), sqlbroker.SubscriberConfig{Window: 1, TakeOverAfter: time.Second}))
	inHand := receive(t, silent)
	thaw := proxy.Freeze()
	defer thaw()
	successor := newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1})
	other := subscribe(t, successor)
	wantIDs(t, "the other has all", ids(t, other, 10), 0, 10)
	inHand.Ack()
	allAcked(t, db)
	thaw()
	publish(t, p, numbered(10, 20)...)
	wantIDs(t, "the other goes on", ids(t, other, 10), 10, 20)
	nothing(t, "who was silent waits", silent)
	if err := successor.Close(); err != nil {
		t.Error(err)
	}
	publish(t, p, numbered(20, 30)...)
	wantIDs(t, "and goes on where the other ended", ids(t, silent, 10), 20, 30)
}

// Close returns although the server does not answer.
func TestCloseWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	publish(t, newPublisher(t, open(t, dbURL), sqlbroker.PublisherConfig{}), numbered(0, 10)...)
	proxy := testkit.StartProxy(t, dbURL)
	s := newSubscriber(t, open(t, proxy.URL()), sqlbroker.SubscriberConfig{})
	received := subscribe(t, s)
	ids(t, received, 3)
	thaw := proxy.Freeze()
	defer thaw()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(9 * time.Second): // a statement may take 10
		t.Error("Close has not returned after 9 s")
	}
}

// A row that is no message goes into quarantine, whole, and the good ones around it come.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 1)...)
	const insert = `INSERT INTO watermill_orders (uuid, payload, metadata, transaction_id) VALUES ($1, 'abc', $2, pg_current_xact_id())`
	for i, metadata := range []string{`{"a": 1}`, `["a"]`, `"a"`, `{"a": {"b": "c"}}`} {
		exec(t, db, insert, fmt.Sprint("bad ", i), metadata)
	}
	exec(t, db, `INSERT INTO watermill_orders (uuid, transaction_id) VALUES (1, pg_current_xact_id())`) // has nothing, which is no fault
	exec(t, db, insert, "2", `null`)
	publish(t, p, numbered(3, 4)...)
	s := newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1})
	wantIDs(t, "the good ones come", ids(t, subscribe(t, s), 4), 0, 4)
	allAcked(t, db)
	quarantined, err := s.Subscribe(t.Context(), sqlbroker.QuarantineTopic)
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, quarantined)
	if m.UUID != "bad 0" || string(m.Payload) != "abc" || m.Metadata["waybill_topic"] != topic || m.Metadata["waybill_group"] != group ||
		m.Metadata["waybill_metadata"] != `{"a": 1}` || m.Metadata["waybill_error"] == "" {
		t.Errorf("in quarantine: %s %s %v", m.UUID, m.Payload, m.Metadata)
	}
	m.Ack()
	ids(t, quarantined, 3)
}

// A table that is dropped and made again, as by a restore, is read from its beginning.
func TestTableIsDropped(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p, s := newPublisher(t, db, sqlbroker.PublisherConfig{}), newSubscriber(t, db, sqlbroker.SubscriberConfig{})
	publish(t, p, numbered(0, 5)...)
	received := subscribe(t, s)
	ids(t, received, 5)
	other, err := s.Subscribe(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "DROP TABLE watermill_orders, watermill_offsets_orders")
	if err := p.Publish("other", numbered(0, 5)...); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "another topic", ids(t, other, 5), 0, 5)
	testkit.Eventually(t, 10*time.Second, func() error { return p.Publish(topic, numbered(7, 8)...) })
	wantIDs(t, "the new table", ids(t, received, 1), 7, 8)
}

// After a restore into a server whose transactions have lower numbers, messages would be
// skipped. The subscriber refuses, until they are numbered anew.
func TestRestored(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 5)...)
	publish(t, p, numbered(5, 10)...)
	first := newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1})
	ids(t, subscribe(t, first), 7)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// As if the dump came from a server that is a billion transactions ahead.
	exec(t, db, `UPDATE watermill_orders SET transaction_id = ((transaction_id::text::bigint + 1000000000)::text)::xid8`)
	exec(t, db, `UPDATE watermill_offsets_orders SET last_processed_transaction_id = ((last_processed_transaction_id::text::bigint + 1000000000)::text)::xid8`)
	logged := new(logBuffer)
	received := subscribe(t, newSubscriber(t, db, sqlbroker.SubscriberConfig{Window: 1, Logger: slog.New(slog.NewTextHandler(logged, nil))}))
	nothing(t, "the position is ahead", received)
	testkit.Eventually(t, 10*time.Second, func() error {
		if !strings.Contains(logged.String(), "Renumber") {
			return fmt.Errorf("the log does not say what to do: %s", logged)
		}
		return nil
	})
	for range 2 { // a second time does no harm
		if err := sqlbroker.Renumber(t.Context(), db, topic); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, p, numbered(10, 12)...)
	wantIDs(t, "all that was unread, and what is new", ids(t, received, 5), 7, 12)
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What every group has acked is deleted, and nothing else; a topic without groups is left
// alone.
func TestCleanUp(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 2500)...)
	if err := p.Publish("ungrouped", numbered(0, 10)...); err != nil {
		t.Fatal(err)
	}
	s := newSubscriber(t, db, sqlbroker.SubscriberConfig{CleanInterval: 20 * time.Millisecond})
	slow, err := s.SubscribeConsumer(t.Context(), topic, "slow", 1)
	if err != nil {
		t.Fatal(err)
	}
	m := receive(t, slow)
	fast := subscribe(t, s)
	ids(t, fast, 2500)
	allAcked(t, db)
	nothing(t, "the slow one has the first in hand", slow)
	if got := inOrder(t, db, topic); len(got) != 2500 {
		t.Fatalf("messages that one group has not acked are deleted: %d are left", len(got))
	}
	m.Ack()
	wantIDs(t, "the slow one gets all", ids(t, slow, 2489), 1, 2490)
	last := receive(t, slow)
	testkit.Eventually(t, 10*time.Second, func() error {
		if got := inOrder(t, db, topic); !slices.Equal(got, uuids(numbered(2490, 2500))) {
			return fmt.Errorf("%d messages are left, want those from 2490 on", len(got))
		}
		return nil
	})
	last.Ack()
	if n := len(inOrder(t, db, "ungrouped")); n != 10 {
		t.Errorf("a topic without groups has %d messages", n)
	}
}

// Messages that a dispatcher publishes are JSON: this is about the decoder.
func FuzzMetadata(f *testing.F) {
	f.Add(`{"a":"b"}`)
	f.Add(`null`)
	f.Add(`{"a":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := sqlbroker.DecodeMetadata([]byte(text))
		if err != nil {
			return
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := sqlbroker.DecodeMetadata(again); err != nil || len(second) != len(got) {
			t.Errorf("%q becomes %q: %v", text, again, err)
		}
	})
}
