//go:build unix

package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/router"
)

// A process that dispatches and works is shut down in the middle of each step, while
// events are retried and parked, and long queues of keys are released by replays: nothing is
// lost or done twice, keys stay in order, and the attempts that are recorded are those that
// the handler made, in number and one by one.
func TestSoakShutdown(t *testing.T) {
	beside(t)
	onEachPair(t, shutdowns)
}

func shutdowns(t *testing.T, kind, broker string) {
	c, r := newCareful(t, kind, broker), testkit.Random(t)
	c.ttl = time.Minute // on a busy machine, too, none runs out
	missed := map[eventing.FaultPoint]bool{}
	lives := 0
	for end, round := time.Now().Add(either(0, 20*time.Second)), 0; round == 0 || time.Now().Before(end); round++ {
		for _, i := range r.Perm(len(steps)) {
			c.operate(r)
			c.appendSome(r)
			nth := 1 + r.IntN(4)
			if i < ofBatches {
				nth = 1 // there may be no second one
			}
			if hit := c.live(steps[i], nth); hit {
				delete(missed, steps[i])
			} else if round == 0 {
				missed[steps[i]] = true
			}
			lives++
		}
	}
	c.restUntil(c.finished)
	c.judge()
	t.Logf("%d shutdowns, %d events, %d failures of the handler", lives, len(c.journal.committed), c.sum())
	if len(missed) > 0 {
		t.Errorf("nothing was shut down at %v: this proves little", missed)
	}
}

// careful is a process that is shut down and starts again, and what its handler has done.
type careful struct {
	*depot
	ttl     time.Duration     // of its leases
	damaged map[string]string // by key: the event that freezes it

	mu       sync.Mutex
	failures map[string]int // of the handler, that it returned an error of its own for
	runs     map[string]int
	repaired map[string]bool
	hanging  map[string]bool // events whose handlers wait for the end of their contexts
	hung     map[string]bool // those that do or did
}

func newCareful(t *testing.T, kind, broker string) *careful {
	t.Helper()
	d := newDepot(t, kind, broker)
	d.exec(t, `CREATE TABLE conclusions (event_id text NOT NULL, state text NOT NULL, attempt bigint NOT NULL)`)
	return &careful{
		depot: d, damaged: map[string]string{}, failures: map[string]int{}, runs: map[string]int{},
		repaired: map[string]bool{}, hanging: map[string]bool{}, hung: map[string]bool{},
	}
}

const attempts = 3 // of the handler; a replay has as many again

// live is a life of the process, which is shut down when it comes to a step for the nth
// time, if it does so in a while.
func (c *careful) live(step eventing.FaultPoint, nth int) (hit bool) {
	c.Helper()
	ctx, shutDown := context.WithTimeout(c.Context(), 10*time.Second)
	defer shutDown()
	var mu sync.Mutex
	c.run(eventing.WithFaults(ctx, func(p eventing.FaultPoint) error {
		mu.Lock()
		defer mu.Unlock()
		if p == step {
			if nth--; nth == 0 {
				hit = true
				shutDown()
			}
		}
		return nil
	}))
	return hit
}

// restUntil is a life of the process that is shut down when all is done.
func (c *careful) restUntil(done func() error) {
	c.Helper()
	ctx, shutDown := context.WithCancel(c.Context())
	var life sync.WaitGroup
	life.Go(func() { c.run(ctx) })
	defer life.Wait()
	defer shutDown()
	testkit.Eventually(c.T, patient, done)
}

// run is the process, until ctx ends. It has to end well.
func (c *careful) run(ctx context.Context) {
	if err := c.tryRun(ctx); err != nil {
		c.Error(err)
	}
}

func (c *careful) tryRun(ctx context.Context) error {
	b, err := c.spec.connect()
	if err != nil {
		return err
	}
	defer b.close()
	holder := eventing.NewID()
	quiet := slog.New(slog.DiscardHandler)
	r, err := router.New(router.Config{
		Store: c.store, Subscriber: b.Subscriber, Holder: holder, LeaseTTL: c.ttl, PollInterval: 50 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(
		r.AddConsumer(router.Consumer{Name: "ledger", Topic: c.spec.Topics + "ledger", OnConclude: c.conclude, Policy: eventing.Policy{
			Ordered: true, Concurrency: eventing.Partitions, Retry: eventing.RetryPolicy{MaxAttempts: attempts, Base: 20 * time.Millisecond},
		}}),
		router.HandleTx(r, "ledger", c.handle, router.On("*")),
	); err != nil {
		return err
	}
	d, err := eventing.NewDispatcher(c.store, b.Publisher, routes(c.spec.Topics), eventing.DispatcherConfig{
		Holder: holder, LeaseTTL: c.ttl, PollInterval: 50 * time.Millisecond, Logger: quiet,
	})
	if err != nil {
		return err
	}
	return together(ctx, []func(context.Context) error{r.Run, d.Run})
}

// conclude writes a conclusion down where it commits.
func (c *careful) conclude(ctx context.Context, tx any, done eventing.Conclusion) error {
	_, err := tx.(*sql.Tx).ExecContext(ctx, `INSERT INTO conclusions (event_id, state, attempt) VALUES ($1, $2, $3)`,
		done.Envelope.ID, string(done.State), done.Attempts)
	return err
}

// handle refuses a parcel of type retried all but the last time, and a damaged one until it is
// repaired.
func (c *careful) handle(ctx context.Context, tx *sql.Tx, e eventing.Event[note]) error {
	if c.hangs(e) {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := c.refusal(e); err != nil {
		return err
	}
	return c.spec.takePlace(ctx, tx, e)
}

// hangs reports whether a run is to hang: of an event that is retried, not the first.
func (c *careful) hangs(e eventing.Event[note]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[e.ID]++
	if !c.hanging[e.ID] || e.Type == retried && c.failures[e.ID] == 0 {
		return false
	}
	c.hung[e.ID] = true
	return true
}

func (c *careful) refusal(e eventing.Event[note]) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Type == retried && c.failures[e.ID] < attempts-1:
		c.failures[e.ID]++
		return errRefused
	case e.Type == damaged && !c.repaired[e.ID]:
		c.failures[e.ID]++
		return errDamaged
	}
	return nil
}

// appendSome appends to keys that flow and, in quick succession, to some that freeze, unless
// there is enough to do.
func (c *careful) appendSome(r *rand.Rand) {
	c.Helper()
	if left, err := c.left(); err != nil {
		c.Fatal(err)
	} else if left > 100 {
		return
	}
	for i := range frozenKeys {
		key := fmt.Sprint("frozen-", i)
		if c.damaged[key] == "" {
			c.damaged[key] = c.append(key, damaged)
		}
		for range 3 {
			c.append(key, load{retries: 20}.eventType(r))
		}
	}
	for range 12 {
		c.append(load{keys: 12}.key(r), load{retries: 20}.eventType(r))
	}
}

const frozenKeys = 3

// operate replays dead letters, of which some succeed then, and others fail again.
func (c *careful) operate(r *rand.Rand) {
	c.Helper()
	letters, err := c.letters.List(c.Context(), eventing.DeadLetterFilter{OpenOnly: true})
	if err != nil {
		c.Fatal(err)
	}
	for _, d := range letters {
		if d.Status != eventing.StatusPending || r.IntN(3) == 0 {
			continue
		}
		if r.IntN(3) > 0 {
			c.repair(d.EventID, d.OrderingKey)
		}
		c.replay(d.EventID, "perhaps it works now")
	}
}

// repair has an event succeed from now on, and its key freeze anew later.
func (c *careful) repair(event, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.repaired[event] = true
	delete(c.damaged, key)
}

// finished repairs and replays what is dead, until everything is done.
func (c *careful) finished() error {
	letters, err := c.letters.List(c.Context(), eventing.DeadLetterFilter{OpenOnly: true})
	if err != nil {
		return err
	}
	for _, event := range c.damaged {
		c.mu.Lock()
		c.repaired[event] = true
		c.mu.Unlock()
	}
	for _, d := range letters {
		if d.Status == eventing.StatusPending {
			err = errors.Join(err, c.letters.Replay(c.Context(), d.Target(), "the operator", "all are repaired"))
		}
	}
	left, lookErr := c.left()
	if err = errors.Join(err, lookErr); err != nil {
		return err
	}
	if left > 0 {
		return fmt.Errorf("%d events are pending or in trouble", left)
	}
	effects, err := c.texts(c.Context(), `SELECT event_id FROM effects`)
	if err == nil && len(effects) < len(c.journal.committed) {
		return fmt.Errorf("%d of %d events have had their effects", len(effects), len(c.journal.committed))
	}
	return err
}

func (c *careful) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, failures := range c.failures {
		n += failures
	}
	return n
}

// Handlers that are still running when the grace of a shutdown ends are interrupted, in
// their first run, in a retry, and on the release of their key: that is no attempt.
func TestSoakShutdownInterrupts(t *testing.T) {
	beside(t)
	for _, kind := range []string{sqliteFile, postgres} {
		t.Run(kind, func(t *testing.T) {
			beside(t)
			interrupted(t, kind)
		})
	}
}

func interrupted(t *testing.T, kind string) {
	c := newCareful(t, kind, inProcess)
	dead := c.append("released", damaged)
	hanging := []string{c.append("released", parcel)}
	c.restUntil(func() error { return c.deadAfter(dead, attempts) })
	if kind == postgres { // in SQLite, nothing else can be written while a handler runs
		hanging = append(hanging, c.append("arriving", parcel), c.append("retrying", retried))
	}
	c.hang(hanging...)
	c.repair(dead, "released")
	c.replay(dead, "it is repaired")
	c.restUntil(func() error { return c.haveHung(len(hanging)) })
	c.heal()
	c.restUntil(c.finished)
	c.judge()
}
