package eventingtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Tests of a dispatcher that runs by itself, on the real clock.

// dispatching has a dispatcher run, until stop.
func dispatching[Tx any](w *world[Tx], cfg eventing.DispatcherConfig) (ctx context.Context, stop func()) {
	w.Helper()
	cfg.Logger, cfg.Holder = slog.New(slog.DiscardHandler), "runs"
	d, err := eventing.NewDispatcher(w.db, w.broker, routes[Tx]{w}, cfg)
	w.must(err)
	ctx, cancel := context.WithCancel(w.ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = d.Run(ctx) })
	return ctx, func() { cancel(); work.Wait() }
}

// dispatchBacklog has much more to dispatch than fits into a batch.
func dispatchBacklog[Tx any](w *world[Tx], workers int) {
	const keys, perKey = 40, 12
	w.consumer("ledger", ordered)
	for n := range perKey {
		var events []eventing.Appendable
		for k := range keys {
			key := fmt.Sprintf("k%d", k)
			events = append(events, order(fmt.Sprintf("%s-%02d", key, n), key))
		}
		w.append(events...)
	}
	_, stop := dispatching(w, eventing.DispatcherConfig{BatchSize: 64, Concurrency: workers})
	defer stop()
	w.until("a backlog is dispatched", func() bool { return w.stats().Outbox["pending"] == 0 })
	seen, last := map[string]bool{}, map[string]string{}
	for _, id := range w.broker.ids("") {
		var key string
		if _, err := fmt.Sscanf(id, "k%s", &key); err != nil {
			w.Fatal(err)
		}
		key = key[:len(key)-len("-00")]
		if seen[id] || id < last[key] {
			w.Fatalf("broken: while nothing fails, each event is published once, those of a key in their order; %s comes after %s", id, last[key])
		}
		seen[id], last[key] = true, id
	}
	w.equal("everything is published", len(seen), keys*perKey)
}

// dispatchLate has a transaction commit after others that began later have been
// dispatched. Nobody is woken.
func dispatchLate[Tx any](w *world[Tx]) {
	if !w.caps.ConcurrentWriters {
		w.Skip("a single writer commits in the order of the sequence")
	}
	w.consumer("billing", nil)
	ctx, stop := dispatching(w, eventing.DispatcherConfig{PollInterval: 100 * time.Millisecond})
	defer stop()
	appended, commit, late := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		late <- w.db.InTx(ctx, func(tx Tx) error {
			err := w.outbox.Append(ctx, tx, order("late", "K"))
			close(appended)
			select {
			case <-commit:
			case <-ctx.Done():
			}
			return err
		})
	}()
	<-appended
	published := func(id string) func() bool {
		return func() bool { return slices.Contains(w.broker.ids(""), id) }
	}
	for i := range 20 {
		id := fmt.Sprintf("e%02d", i)
		w.append(order(id, "K"))
		w.until("what commits is published", published(id))
	}
	close(commit)
	w.must(<-late)
	committed := time.Now()
	w.until("a row that was committed late is published", published("late"))
	if took := time.Since(committed); took > lateLimit {
		w.Errorf("broken: a row that was committed late is found within a second or so; it took %v", took)
	}
	w.until("and settled", func() bool { return w.stats().Outbox["pending"] == 0 })
}

// lateLimit is a second, and more for a machine that is busy with other tests.
const lateLimit = 3 * time.Second
