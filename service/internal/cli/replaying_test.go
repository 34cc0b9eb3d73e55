package cli_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/router"
)

// Invoice is an event of an application; with an odd number, nobody can ever handle it.
type Invoice struct{ Number int }

// billing is an application: it fails for all invoices until somebody has fixed it.
func billing(t *testing.T, e environment, fixed *atomic.Bool) (outbox *eventing.Outbox[*sql.Tx]) {
	t.Helper()
	db := e.open(t)
	broker := inproc.New(inproc.Config{})
	outbox = eventing.NewOutbox(db.Events, eventing.OutboxConfig{})
	quiet := slog.New(slog.DiscardHandler)
	r, err := router.New(router.Config{Store: db.Events, Subscriber: broker, Logger: quiet})
	must(t, err)
	must(t, router.HandleTx(r, "billing", func(_ context.Context, _ *sql.Tx, e eventing.Event[Invoice]) error {
		if !fixed.Load() || e.Payload.Number%2 == 1 {
			return eventing.Permanent(errors.New("invoice " + strconv.Itoa(e.Payload.Number) + " has no address"))
		}
		return nil
	}))
	dispatcher, err := eventing.NewDispatcher(db.Events, broker, r, eventing.DispatcherConfig{Logger: quiet})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	running.Go(func() { _ = dispatcher.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		must(t, broker.Close())
	})
	return outbox
}

// A replay that fails again is pending again, with its history; one that succeeds is closed.
func TestPlanWithAConsumer(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	var fixed atomic.Bool
	outbox := billing(t, e, &fixed)
	must(t, outbox.InTx(t.Context(), func(tx *sql.Tx) error {
		for i := range 40 {
			if err := outbox.Append(t.Context(), tx, eventing.New("invoice", strconv.Itoa(i), Invoice{i})); err != nil {
				return err
			}
		}
		return nil
	}))
	count := func(status string, n int) {
		t.Helper()
		eventually(t, func() int { return object[stats](t, e, "outbox", "stats").DeadLetters[status] }, func(got int) bool { return got == n })
	}
	count("pending", 40)
	fixed.Store(true)
	path, report := e.planFile(t, "--consumer", "billing", "--match", "payload.Number >= 0")
	if report.Targets != 40 || len(report.Groups) != 1 || report.Groups[0].Error != "invoice <n> has no address" {
		t.Fatalf("plan: %+v", report)
	}
	if done := object[eventing.Applied](t, e, "dlq", "apply", path, "--yes", "--rate=0", "--note", "addresses are optional now"); done.Replayed != 40 {
		t.Fatalf("applied: %+v", done)
	}
	count("closed", 20)
	count("pending", 20)
	for _, l := range e.letters(t, "--all") {
		switch n := len(l.History); {
		case len(l.Notes) != 1 || l.Notes[0].Act != "replayed" || l.Notes[0].By != "anna" || l.Notes[0].Note != "addresses are optional now":
			t.Errorf("%s: acts %+v", l.EventID, l.Notes)
		case l.Status == "closed" && (l.Resolution != "resolved" || n != 1):
			t.Errorf("%s succeeded: %+v", l.EventID, l)
		case l.Status == "pending" && (n != 2 || l.History[1].Attempt != 2 || l.AttemptCount != 2):
			t.Errorf("%s failed again: %+v", l.EventID, l)
		}
	}
	// The plan does nothing more; a new one has those that failed again.
	if r := e.run(t, "dlq", "apply", path, "--yes"); r.code != 0 || !strings.Contains(r.stdout, "0 of 40 dead letters replayed, 40 before; 0 left alone") {
		t.Errorf("again: %+v", r)
	}
	if again := object[planned](t, e, "dlq", "plan"); again.Targets != 20 || len(again.Skipped) != 1 || again.Skipped[0].Count != 20 {
		t.Errorf("a new plan: %+v", again)
	}
}
