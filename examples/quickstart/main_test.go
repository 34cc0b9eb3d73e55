package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing/sqlitestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "quickstart.db")
	for _, want := range []string{
		"orders 1, invoices 1, events to send 0\n",
		"orders 2, invoices 2, events to send 0\n",
	} {
		var out bytes.Buffer
		if err := run(ctx, file, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}

// What was placed before a crash is invoiced by whoever runs next.
func TestRunAfterACrash(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "quickstart.db")
	store, err := sqlitestore.Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := placeOrder(ctx, store, "a kettle"); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil { // and nobody has dispatched anything
		t.Fatal(err)
	}
	orders, invoices, pending := 0, 0, 1
	for runs := 0; pending > 0 && runs < 10; runs++ { // a run may stop before it comes to the older order
		var out bytes.Buffer
		if err := run(ctx, file, &out); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(out.String(), "orders %d, invoices %d, events to send %d\n", &orders, &invoices, &pending); err != nil {
			t.Fatal(err)
		}
		if orders != runs+2 || orders != invoices+pending {
			t.Fatalf("each order is invoiced once, or will be: %s", &out)
		}
	}
	if pending > 0 {
		t.Errorf("%d events are still to be sent", pending)
	}
}
