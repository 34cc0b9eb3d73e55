package eventingtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

func liveTests[Tx any]() tests[Tx] {
	return tests[Tx]{"writers, dispatchers and workers at once": live[Tx]}
}

const (
	liveWriters   = 4
	livePerWriter = 15
	liveKeys      = 5
)

// liveBroker delivers every message twice.
type liveBroker map[string]chan *message.Message // by topic

func (b liveBroker) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		b[topic] <- m.Copy()
		b[topic] <- m.Copy()
	}
	return nil
}

func (liveBroker) Close() error { return nil }

// live lets everything run at once, on the real clock: writers of the same keys of
// which some roll back, two dispatchers of which one stops in the middle, a broker that
// delivers everything twice, and workers that fail at first.
func live[Tx any](w *world[Tx]) {
	flaky := func(cfg *eventing.ConsumerConfig) {
		cfg.Now, cfg.PollInterval = time.Now, 5*time.Millisecond
		cfg.Policy.Concurrency = 4
		cfg.Policy.Retry.Base = time.Millisecond
	}
	loose := w.consumer("billing", flaky)
	strict := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) { flaky(cfg); ordered(cfg) })
	for _, c := range w.consumers {
		failed := sync.Map{}
		c.handleWith(func(_ context.Context, e eventing.Envelope) error {
			if _, again := failed.LoadOrStore(e.ID, true); !again && strings.HasSuffix(e.ID, "3") {
				return errBusy
			}
			return nil
		})
	}
	stop := w.run()
	committed := w.write()
	w.until("every committed event is handled by every consumer", func() bool {
		return w.stats().Inbox == int64(len(w.consumers)*committed)
	})
	w.until("every row is settled", func() bool { return w.stats().Outbox["pending"] == 0 })
	stop()

	writer := &consumer[Tx]{w: w, name: "writer"}
	want := writer.effects()
	w.equal("each writer's transactions are counted", len(want), committed)
	for k := range liveKeys {
		ofKey := func(ids []string) []string {
			return slices.DeleteFunc(list(ids...), func(id string) bool { return !strings.HasPrefix(id, fmt.Sprintf("k%d-", k)) })
		}
		w.equal("an ordered consumer sees a key's events in the order of the commits, each once", ofKey(strict.effects()), ofKey(want))
	}
	slices.Sort(want)
	w.equal("an unordered consumer's effects happen exactly once", loose.sorted(), want)
	w.deliveries("nothing is left in trouble", 0, 0, 0)
	w.nothingDead("transient failures kill no event")
}

// run starts all engines, and returns what stops them.
func (w *world[Tx]) run() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var work sync.WaitGroup
	broker := liveBroker{}
	for _, c := range w.consumers {
		for _, topic := range c.topics() {
			queue := make(chan *message.Message, 2*liveWriters*livePerWriter*10)
			broker[topic] = queue
			work.Go(func() {
				for {
					select {
					case <-ctx.Done():
						return
					case m := <-queue:
						if err := c.engine.Receive(ctx, m); err != nil && ctx.Err() == nil {
							w.Errorf("receive: %v", err)
						}
					}
				}
			})
		}
		work.Go(func() { _ = c.engine.Run(ctx) })
	}
	first, cancelFirst := context.WithCancel(ctx)
	for holder, life := range map[string]context.Context{"first": first, "second": ctx} {
		d, err := eventing.NewDispatcher(w.db, broker, routes[Tx]{w}, eventing.DispatcherConfig{
			BatchSize: 10, PollInterval: 5 * time.Millisecond, LeaseTTL: 2 * time.Second, Holder: holder, Logger: slog.New(slog.DiscardHandler),
		})
		w.must(err)
		work.Go(func() { _ = d.Run(life) })
	}
	work.Go(func() {
		defer cancelFirst()
		w.until("the first dispatcher gets somewhere", func() bool {
			s, err := w.db.Stats(ctx)
			return err != nil || s.Outbox["sent"] > liveWriters*livePerWriter/4
		})
	})
	return func() { cancel(); work.Wait() }
}

// write appends from several goroutines, each event with an effect of the writer in
// the same transaction, and returns how many transactions were committed.
func (w *world[Tx]) write() (committed int) {
	outbox := eventing.NewOutbox[Tx](w.db, eventing.OutboxConfig{SerializeKeys: true})
	errRolledBack := errors.New("rolled back")
	var writers sync.WaitGroup
	for i := range liveWriters {
		writers.Go(func() {
			for n := range livePerWriter {
				key := fmt.Sprintf("k%d", (i+n)%liveKeys)
				id := fmt.Sprintf("%s-%d-%d", key, i, n)
				err := outbox.InTx(w.ctx, func(tx Tx) error {
					if err := outbox.Append(w.ctx, tx, order(id, key)); err != nil {
						return err
					}
					if err := w.db.Effect(w.ctx, tx, "writer", id); err != nil {
						return err
					}
					if n%5 == 4 {
						return errRolledBack
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRolledBack) {
					w.Errorf("append: %v", err)
				}
			}
		})
	}
	writers.Wait()
	return liveWriters * (livePerWriter - livePerWriter/5)
}

// until waits for something to become true.
func (w *world[Tx]) until(guarantee string, done func() bool) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-w.ctx.Done():
			w.Errorf("broken: %s: not within %v; %+v", guarantee, patience, w.stats())
			return
		}
	}
}
