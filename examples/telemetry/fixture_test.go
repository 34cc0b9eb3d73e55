package main

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// patient is for what has to happen, on a busy machine.
const patient = time.Minute

// world is a database and the system that runs on it.
type world struct {
	*testing.T
	db *database
	system
}

// testConfig looks often and tries again soon.
func testConfig() config {
	return config{
		settlement: eventing.Policy{Timeout: time.Second, Retry: eventing.RetryPolicy{MaxAttempts: 3, Base: 10 * time.Millisecond}},
		poll:       20 * time.Millisecond, logger: slog.New(slog.DiscardHandler),
	}
}

// open opens a database until the test ends.
func open(t *testing.T, address string) *database {
	t.Helper()
	db, err := openDatabase(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// start runs a system until the test ends.
func start(t *testing.T, address string, cfg config) world {
	t.Helper()
	db := open(t, address)
	s, err := newSystem(db.events, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return world{t, db, *s}
}

func (w world) setTariff(tenant, station string, cents int64) {
	w.Helper()
	w.exec(setTariff, tenant, station, cents)
}

// exec runs a statement of the application, or of a person.
func (w world) exec(statement string, args ...any) {
	w.Helper()
	execOn(w.T, w.db, statement, args...)
}

func execOn(t *testing.T, db *database, statement string, args ...any) {
	t.Helper()
	if err := db.events.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), statement, args...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// closes closes a window of 600 Wh and returns its ID.
func (w world) closes(ctx context.Context, tenant, station string) (id string) {
	w.Helper()
	id = eventing.NewID()
	if err := w.closeWindow(ctx, window{id, tenant, station, []int64{100, 200, 300}}); err != nil {
		w.Fatal(err)
	}
	return id
}

// waitUntilQuiet waits for as long as events are being processed.
func (w world) waitUntilQuiet() {
	w.Helper()
	for {
		before := w.count(`SELECT count(*) FROM processed_events`)
		err := waitUntilQuiet(within(w.T, patient), w.db.read)
		if err == nil {
			return
		}
		if w.count(`SELECT count(*) FROM processed_events`) == before {
			w.Fatalf("there is still something on its way: %v", err)
		}
	}
}

// replay sends an event again, by the documented SQL.
func (w world) replay(eventIDs ...string) {
	w.Helper()
	if err := replay(w.Context(), w.db.events, eventIDs); err != nil {
		w.Fatal(err)
	}
	w.waitUntilQuiet()
}

// texts returns the only column of a query, which must succeed.
func (w world) texts(query string, args ...any) []string {
	w.Helper()
	all, err := texts(w.Context(), w.db.read, query, args...)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// audit returns what the audit objects to.
func (w world) audit() findings {
	w.Helper()
	f, err := audit(w.Context(), w.db.read)
	if err != nil {
		w.Fatal(err)
	}
	return f
}

func (w world) count(query string) (n int) {
	w.Helper()
	if err := w.db.read.QueryRowContext(w.Context(), query).Scan(&n); err != nil {
		w.Fatal(err)
	}
	return n
}
