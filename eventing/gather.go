package eventing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// batcher gathers the deliveries of concurrent Receives into batches. There is no goroutine
// of its own: the first to wait leads a batch, and the next one leads what that batch
// had no room for.
type batcher struct {
	c      *Consumer
	handle BatchHandlerFunc
	policy BatchPolicy

	mu      sync.Mutex
	waiting []*arrival // the leader first
	leader  *arrival   // gathers a batch; nil if nobody waits
}

// arrival is a delivery that waits for its batch.
type arrival struct {
	ctx   context.Context
	d     Delivery
	e     Envelope
	lease *Lease
	since time.Time

	leads chan struct{} // closed once it leads
	full  chan struct{} // has an element once its batch is full
	done  chan struct{} // closed once err says what became of it
	err   error
}

// errAlone: nothing was done about the delivery in its batch; it is to be received alone.
var errAlone = errors.New("to be received alone")

// receiver returns a [Consumer.receive] for the tries at one delivery: with others, but alone
// from when that was of no use. So what cannot be concluded spoils one batch and not each.
func (b *batcher) receiver() func(ctx context.Context, d Delivery, e Envelope) error {
	alone := false
	return func(ctx context.Context, d Delivery, e Envelope) error {
		if !alone {
			err := b.receive(ctx, d, e)
			if alone = errors.Is(err, errAlone); !alone {
				return err
			}
		}
		return b.c.receive(ctx, d, e)
	}
}

// receive waits for what becomes of a delivery in its batch.
func (b *batcher) receive(ctx context.Context, d Delivery, e Envelope) error {
	a := &arrival{
		ctx: ctx, d: d, e: e, since: time.Now(),
		leads: make(chan struct{}), full: make(chan struct{}, 1), done: make(chan struct{}), err: errAlone,
	}
	b.join(a)
	select {
	case <-a.done:
	case <-a.leads:
		if err := b.lead(ctx, a); err != nil {
			return err
		}
	case <-ctx.Done():
		b.quit(a)
		return ctx.Err() // if its batch is running: its next arrival will tell
	}
	return a.err
}

func (b *batcher) join(a *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, a)
	b.appoint()
}

// quit takes an arrival out, if no batch has taken it.
func (b *batcher) quit(a *arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(w *arrival) bool { return w == a })
	if b.leader == a {
		b.leader = nil
	}
	b.appoint()
}

// take returns the leader's batch, and has the next one led.
func (b *batcher) take() []*arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.policy.Size)
	batch := b.waiting[:n:n]
	b.waiting = slices.Clone(b.waiting[n:])
	b.leader = nil
	b.appoint()
	return batch
}

// appoint makes sure that somebody leads those who wait, and knows if the batch is full. The batcher is locked.
func (b *batcher) appoint() {
	if len(b.waiting) == 0 {
		return
	}
	if b.leader == nil {
		b.leader = b.waiting[0]
		close(b.leader.leads)
	}
	if len(b.waiting) >= b.policy.Size {
		select {
		case b.leader.full <- struct{}{}:
		default:
		}
	}
}

// lead gathers a batch until it is full, or its first has waited for long enough and there
// is a slot; then it runs it. Its error is that of ctx, if that came before.
func (b *batcher) lead(ctx context.Context, a *arrival) error {
	linger := time.NewTimer(time.Until(a.since.Add(b.policy.Linger)))
	defer linger.Stop()
	select {
	case <-a.full:
	case <-linger.C:
	case <-ctx.Done():
		b.quit(a)
		return ctx.Err()
	}
	select {
	case b.c.slots <- struct{}{}:
	case <-ctx.Done():
		b.quit(a)
		return ctx.Err()
	}
	batch := b.take()
	defer func() {
		<-b.c.slots // before those who go on alone need one
		for _, other := range batch {
			close(other.done)
		}
	}()
	b.run(ctx, batch)
	return nil
}

// run concludes those of a batch of which the store knows nothing.
func (b *batcher) run(ctx context.Context, batch []*arrival) {
	if len(batch) == 1 {
		return
	}
	distinct, done, err := b.distinct(ctx, batch)
	defer done()
	if err == nil {
		distinct, err = b.untouched(ctx, distinct)
	}
	if err != nil {
		conclude(batch, err)
		return
	}
	b.conclude(ctx, distinct)
}

// distinct returns those that can share a call: no replays, of each event one, of each
// ordering key one, and with a lease if they need it, which they have until done is called.
func (b *batcher) distinct(ctx context.Context, batch []*arrival) (distinct []*arrival, done func(), err error) {
	seen := make(map[string]bool, len(batch))
	var dones []func()
	done = func() {
		for _, done := range dones {
			done()
		}
	}
	for _, a := range batch {
		id := or(a.d.OrderingKey, a.d.EventID)
		if seen[id] || a.d.Generation > 0 {
			continue
		}
		seen[id] = true
		lease, leased, err := b.c.leaseFor(ctx, a.d.Partition)
		if errors.Is(err, errNoLease) {
			continue
		}
		if err != nil {
			return nil, done, err
		}
		a.lease = lease
		distinct, dones = append(distinct, a), append(dones, leased)
	}
	return distinct, done, nil
}

// untouched asks the store.
func (b *batcher) untouched(ctx context.Context, batch []*arrival) ([]*arrival, error) {
	ds := make([]Delivery, len(batch))
	for i, a := range batch {
		ds[i] = a.d
	}
	known, err := b.c.store.Untouched(ctx, ds)
	if err != nil {
		return nil, err
	}
	var untouched []*arrival
	for i, a := range batch {
		if known[i] {
			untouched = append(untouched, a)
		}
	}
	return untouched, Fault(ctx, FaultArrived)
}

// conclude runs the handler on a batch; if that fails, on its first event alone, which is an
// attempt and tells the breaker whether it is worth going on, and on each half of the
// others. The last one is left to be received alone.
func (b *batcher) conclude(ctx context.Context, batch []*arrival) {
	if len(batch) < 2 {
		return
	}
	leave := b.c.breaker.TryEnter()
	if leave == nil {
		conclude(batch, errBreakerOpen)
		return
	}
	defer leave(ErrNoAttempt)
	err := b.succeed(ctx, batch)
	var failed *handlerError
	switch {
	case (errors.As(err, &failed) || errors.Is(err, ErrBrokenTx)) && ctx.Err() == nil:
		b.c.cfg.Logger.Debug("consumer: a batch failed and is split", "events", len(batch), "error", err)
		leave(ErrNoAttempt) // nobody knows whose fault it is
		first, others := batch[0], batch[1:]
		if err := b.alone(ctx, first); err == nil || errors.Is(err, errBreakerOpen) {
			first.err = err
		}
		b.conclude(ctx, others[:len(others)/2])
		b.conclude(ctx, others[len(others)/2:])
	case errors.Is(err, ErrLeaseLost):
		b.c.leases.doubt()
	case errors.Is(err, ErrConflict): // one of them has been dealt with since
	default:
		if err == nil {
			leave(nil)
		}
		conclude(batch, err)
	}
}

// alone makes an attempt at one event, in the slot of its batch.
func (b *batcher) alone(ctx context.Context, a *arrival) error {
	lease, done, err := b.c.leaseFor(ctx, a.d.Partition)
	if err != nil {
		return err
	}
	defer done()
	run, undecided, err := b.c.arrive(ctx, a.d, a.e, lease)
	if err != nil || !undecided {
		return err
	}
	return b.c.attempt(ctx, run, a.e)
}

// conclude says what became of each.
func conclude(batch []*arrival, err error) {
	for _, a := range batch {
		a.err = err
	}
}
