package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/waybill-go/waybill/eventing"
)

// letters are what became of the letters about a case, in order.
func (w world) lettersOf(l *life) []string {
	w.Helper()
	return w.texts(`SELECT notification || ' ' || recipient || ' ' || channel || ' ' || status || ' ' || failures FROM notifications
		WHERE case_id = $1 ORDER BY notification, recipient, channel, status`, l.caseID)
}

// told counts the events of a type about a case.
func (w world) told(l *life, eventType string) int {
	w.Helper()
	return w.count(`SELECT count(*) FROM events WHERE event_type = $1 AND CAST(aggregate_id AS text) = $2`, eventType, l.caseID)
}

// times returns how often a letter was sent.
func (p *provider) times(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[id]
}

// A channel that fails delays its own letters and no others, and none is sent twice for it.
func TestChannelFails(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.turn("channel email", flapping(map[string]int{l.caseID: 3}, failing(errOutage)))
		w.done(l, apply)
		if got, want := w.lettersOf(l), []string{"application_received citizen email sent 3", "application_received citizen portal sent 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, id := range w.texts(`SELECT notification_id FROM notifications WHERE case_id = $1`, l.caseID) {
			if n := w.notifier.provider.times(id); n != 1 {
				t.Errorf("a letter was sent %d times, want once", n)
			}
		}
		if sent, failed := w.told(l, "notification_sent"), w.told(l, "notification_failed"); sent != 2 || failed != 3 {
			t.Errorf("%d letters were told of as sent, and %d failures, want 2 and 3", sent, failed)
		}
		counts := w.texts(`SELECT CAST(payload AS text) FROM events WHERE event_type = 'notification_failed' ORDER BY created_at`)
		for i, payload := range counts {
			if p := decoded[notificationFailed](t, payload); p.RetryCount != i || p.Channel != "email" || p.FailureReason == "" {
				t.Errorf("failure %d: got %+v", i, p)
			}
		}
		w.clean()
	})
}

// What cannot be sent at any attempt goes to the case's handler, who has a telephone: the dead letter is for somebody to see. What was
// sent by other channels is not sent again.
func TestFallback(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.turn("channel email", failing(errOutage))
		w.done(l, apply)
		if got, want := w.lettersOf(l), []string{
			"application_received case_handler internal fallback 0", "application_received citizen email given_up 6", "application_received citizen portal sent 0",
		}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if sent, failed := w.told(l, "notification_sent"), w.told(l, "notification_failed"); sent != 2 || failed != 6 {
			t.Errorf("%d letters were told of as sent, and %d failures, want 2 and 6", sent, failed)
		}
		if c := w.tally.consumers[notificationEngine]; c.instead != 1 || c.failed != 6 {
			t.Errorf("the tally has %+v", c)
		}
		w.accepted(notificationEngine)
		w.clean()
	})
}

// If it is not even known whom to tell, the handler is to find out.
func TestFallbackWithoutLetters(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir()+"/casework.db")
	l := w.newLife()
	w.turn("lookup case", failing(errOutage))
	w.done(l, apply)
	if got, want := w.lettersOf(l), []string{"undecided case_handler internal fallback 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	w.accepted(notificationEngine)
	w.clean()
}

// Sending is not part of a transaction: who dies after it, and before it is written down, sends the letter again. It has the ID that it had, and
// is written down and told of once.
func TestSentTwice(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		db := open(t, address)
		failing := &failingOnce{eventStore: db.events}
		db.events = failing
		w := startOn(t, db)
		failing.when = func() bool { return len(w.notifier.provider.all()) == 2 }
		l := w.newLife()
		w.done(l, apply)
		if !failing.failed {
			t.Fatal("nothing has failed: this proves nothing")
		}
		if got, want := w.lettersOf(l), []string{"application_received citizen email sent 0", "application_received citizen portal sent 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for id, n := range w.notifier.provider.all() {
			if n != 2 {
				t.Errorf("letter %s was sent %d times, want twice", id, n)
			}
		}
		if n := w.told(l, "notification_sent"); n != 2 {
			t.Errorf("%d letters were told of as sent, want 2", n)
		}
		w.clean()
	})
}

// Two runs of an event that do not know of each other may have sent the same letters: what is written down first stays, and is told of.
func TestRecordedOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		w := start(t, address)
		l := w.newLife()
		w.done(l, apply)
		w.exec(`UPDATE notifications SET status = 'read' WHERE channel = 'portal'`)
		var again []outcome
		for _, channel := range []string{"portal", "email"} {
			id := w.texts(`SELECT notification_id FROM notifications WHERE channel = $1`, channel)[0]
			again = append(again, outcome{letter{id: id, eventID: "e", caseID: l.caseID, notification: "application_received", recipient: "citizen", channel: channel}, errOutage})
		}
		if err := w.db.events.InTx(t.Context(), func(tx *sql.Tx) error { return w.notifier.record(t.Context(), tx, again) }); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if got, want := w.lettersOf(l), []string{"application_received citizen email sent 0", "application_received citizen portal read 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if n := w.told(l, "notification_failed"); n != 0 {
			t.Errorf("%d failures are told of, want none", n)
		}
	})
}

// What becomes of letters is told by their channels, once.
func TestReports(t *testing.T) {
	t.Parallel()
	w := start(t, t.TempDir()+"/casework.db")
	for range 60 {
		w.do(w.newLife(), apply)
	}
	w.settle()
	for range 2 {
		if err := w.collectReports(t.Context(), w.clock.now()); err != nil {
			t.Fatal(err)
		}
		w.settle()
	}
	letters := w.count(`SELECT count(*) FROM notifications`)
	for status, eventType := range map[string]string{"bounced": "notification_failed", "read": "notification_read"} {
		rows, events := w.count(`SELECT count(*) FROM notifications WHERE status = $1`, status), w.count(`SELECT count(*) FROM events WHERE event_type = $1`, eventType)
		if rows == 0 || rows != events {
			t.Errorf("%d letters are %s, and %d events tell of it", rows, status, events)
		}
		letters -= map[string]int{"bounced": rows}[status]
	}
	if n := w.count(`SELECT count(*) FROM events WHERE event_type = 'notification_delivered'`); n != letters {
		t.Errorf("%d letters are told of as delivered, want %d", n, letters)
	}
	w.clean()
}

// all returns how often each letter was sent.
func (p *provider) all() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := map[string]int{}
	for id, n := range p.sent {
		sent[id] = n
	}
	return sent
}

// failingOnce is a store one of whose transactions of the application fails: that at whose beginning something is so.
type failingOnce struct {
	eventStore
	when   func() bool
	failed bool
}

var errStore = errors.New("the connection broke")

func (s *failingOnce) InTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	if _, handling := eventing.EnvelopeFromContext(ctx); handling && !s.failed && s.when() {
		s.failed = true
		return errStore
	}
	return s.eventStore.InTx(ctx, fn)
}

// decoded is a payload.
func decoded[T any](t *testing.T, payload string) (p T) {
	t.Helper()
	if err := json.Unmarshal([]byte(payload), &p); err != nil {
		t.Fatal(err)
	}
	return p
}
