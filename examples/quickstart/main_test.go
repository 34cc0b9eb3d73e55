package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const counts = `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM invoices), (SELECT count(*) FROM event_outbox WHERE status = 'pending')`

// look returns how many orders and invoices there are, and events to send.
func look(t *testing.T, file string) (got [3]int) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Reader().QueryRowContext(t.Context(), counts).Scan(&got[0], &got[1], &got[2]); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "quickstart.db")
	for i, number := range []string{"7", "8"} {
		if err := run(ctx, file, number); err != nil {
			t.Fatal(err)
		}
		if got, want := look(t, file), [3]int{i + 1, i + 1, 0}; got != want {
			t.Errorf("after order %s: got %v orders, invoices and events to send, want %v", number, got, want)
		}
	}
}

// What was placed before a crash is invoiced by whoever runs next.
func TestRunAfterACrash(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "quickstart.db")
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	if err := outbox.InTx(ctx, func(tx *sql.Tx) error {
		return outbox.Append(ctx, tx, eventing.New("order", "6", OrderPlaced{"6"}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil { // and nobody has dispatched anything
		t.Fatal(err)
	}
	for number := 7; ; number++ { // a run may stop before it comes to the older order
		if err := run(ctx, file, string(rune('0'+number))); err != nil {
			t.Fatal(err)
		}
		got := look(t, file)
		if got[0]+1 != got[1]+got[2] {
			t.Fatalf("each order is invoiced once, or will be: %v", got)
		}
		if got[2] == 0 {
			return
		}
	}
}
