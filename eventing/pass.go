package eventing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// worker dispatches some of the partitions: always the same ones, so that no
// partition is in two batches.
type worker struct {
	d      *Dispatcher
	n, of  int // it has partition p if p modulo of is n
	nudged chan struct{}

	one  sync.Mutex // pass at a time
	room int        // how many rows to publish at a time
	look *lookout
	// taken are topics that took their message of a row while another of its topics
	// did not: in the next pass they need not take it again. expedited are the same for
	// rows of the critical lane that went out before their turn.
	taken, expedited map[int64][]string
	suspicions       suspicions
	apart            time.Time // until then each topic is published on its own
	stalled          bool      // a topic took nothing, while others did
	adoptAgain       time.Time // until then hand-written rows are left alone: adopting failed
	settling         *settling
	ahead            *ahead
}

func newWorker(d *Dispatcher, n, of int) *worker {
	return &worker{d: d, n: n, of: of, nudged: make(chan struct{}, 1), room: d.cfg.BatchSize, look: newLookout(d.cfg.BatchSize)}
}

// run makes passes until ctx ends.
func (w *worker) run(ctx context.Context) {
	woken, stop := w.d.store.Sleep()
	defer stop()
	defer func() { _ = w.rest() }() // what is not settled will be published again
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	longest := w.d.cfg.PollInterval
	idle := longest
	for ctx.Err() == nil {
		n, more, err := w.pass(ctx, true)
		if !more {
			err = errors.Join(err, w.rest())
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause := wait.NextBackOff()
			w.d.cfg.Logger.Warn("dispatcher: will try again", "error", err, "in", pause)
			w.sleep(ctx, pause, nil)
			continue
		case n > 0:
			idle = minPause
		default:
			idle = min(2*idle, longest)
		}
		wait.Reset()
		if more {
			continue
		}
		if w.d.listening.Load() {
			idle = longest
		}
		w.sleep(ctx, w.look.wait(idle), woken)
	}
}

// minPause is how soon a store that tells of nothing is asked again after it had
// something.
const minPause = 5 * time.Millisecond

// sleep waits for work; if woken is nil, for the whole pause.
func (w *worker) sleep(ctx context.Context, pause time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var nudged, landed <-chan struct{}
	if woken != nil {
		nudged = w.nudged
		if w.d.inFlight != nil {
			landed = w.d.inFlight.landed
		}
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-woken:
	case <-nudged:
	case <-landed:
	}
}

// listen follows the store's own notifications. Without them, as behind a pooler of
// connections that does not pass them on, there is polling.
func (d *Dispatcher) listen(ctx context.Context, l Listener) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second),
		backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		err := l.Listen(ctx, func() {
			wait.Reset()
			d.listening.Store(true)
			d.nudge() // for what came before
		})
		d.listening.Store(false)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errors.ErrUnsupported):
			d.cfg.Logger.Info("dispatcher: the store cannot tell of appends in other processes; polling", "reason", err)
			return
		}
		pause := wait.NextBackOff()
		d.cfg.Logger.Warn("dispatcher: the store does not tell of appends in other processes; polling meanwhile",
			"error", err, "try_again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// once makes a pass that leaves out nothing.
func (w *worker) once(ctx context.Context) (int, error) {
	w.one.Lock()
	w.look.forget()
	w.room = w.d.cfg.BatchSize // whatever time the last batch took
	w.adoptAgain = time.Time{}
	w.one.Unlock()
	n, _, err := w.pass(ctx, false)
	return n, errors.Join(err, w.rest())
}

// rest waits for what is being settled, or has been claimed ahead.
func (w *worker) rest() error {
	w.one.Lock()
	defer w.one.Unlock()
	w.drop()
	return w.join()
}

// pass settles what has completed, adopts, claims a batch, publishes and settles it.
// It returns how many rows it dealt with, and whether there may be more at once; then, if
// it goes on, the next claim is on its way.
func (w *worker) pass(ctx context.Context, goesOn bool) (n int, more bool, err error) {
	w.one.Lock()
	defer w.one.Unlock()
	d := w.d
	if err := d.leases.refresh(ctx); err != nil {
		return 0, false, fmt.Errorf("take the leases: %w", err)
	}
	total, err := d.settleCompleted(ctx)
	if err != nil {
		return total, false, err
	}
	h := w.hold()
	defer func() {
		if err != nil {
			w.look.retreat()
		}
		if s := w.settling; s != nil && s.hold == nil {
			s.hold = h // with the batch of this pass
		} else {
			h.end()
		}
	}()
	claimed, more, err := w.claim(ctx, h)
	if err != nil {
		return total, false, err
	}
	if claimed.Unadopted {
		n, err := w.adopt(ctx)
		total += n
		more = more || n > 0
		if err != nil {
			return total, false, err
		}
	}
	if len(claimed.Rows)+len(claimed.Critical) == 0 {
		return total, more, nil
	}
	if err := Fault(ctx, FaultClaimed); err != nil {
		return total, false, err
	}
	n, gone, err := w.expedite(ctx, claimed.Critical)
	total += n
	if err != nil {
		return total, false, err
	}
	rows := without(claimed.Rows, gone)
	if more && goesOn {
		w.lookAhead(ctx, rows)
	}
	began := time.Now()
	n, err = w.publish(ctx, rows)
	if w.settling != nil {
		w.adapt(n, time.Since(began))
	} else { // not all of it is out
		w.drop()
		w.look.retreat()
		w.grow() // to see more than what does not go out
	}
	total += n
	return total, more && total > 0 && err == nil && !w.stalled, err
}

// adapt makes batches smaller that take long: a critical event may be waiting.
func (w *worker) adapt(n int, took time.Duration) {
	if took <= passTime {
		w.grow()
		return
	}
	w.room = max(min(n, w.room)*int(passTime/time.Microsecond)/int(took/time.Microsecond), w.d.cfg.BatchSize/20, 1)
}

func (w *worker) grow() { w.room = min(2*w.room, w.d.cfg.BatchSize) }

// passTime is how long a batch should take at most. Two of them go before an event that
// comes when the next claim has just been made.
const passTime = 25 * time.Millisecond

// without leaves out critical rows that the request excluded: they are being published or
// settled.
func (c Claimed) without(r ClaimRequest) Claimed {
	if len(c.Critical) > 0 {
		seqs := map[int64]bool{}
		for _, p := range r.Partitions {
			for _, seq := range p.Exclude {
				seqs[seq] = true
			}
		}
		c.Critical = without(c.Critical, seqs)
	}
	return c
}

func without(rows []OutboxRow, gone map[int64]bool) []OutboxRow {
	if len(gone) == 0 {
		return rows
	}
	var rest []OutboxRow
	for _, r := range rows {
		if !gone[r.Seq] {
			rest = append(rest, r)
		}
	}
	return rest
}

// claim looks for the next batch of the partitions that are held, in several requests if
// the batch is too small for all of them.
func (w *worker) claim(ctx context.Context, h *hold) (c Claimed, more bool, err error) {
	held := h.partitions()
	for _, l := range h.leases {
		w.look.takeOver(l)
	}
	defer func() { w.d.leases.record(held, w.look.base) }()
	if c, more, ok := w.caughtUp(h); ok {
		return c, more, nil
	}
	everything, began, asked := w.look.everything(), time.Now(), 0
	for {
		var n int
		var again bool
		c, more, again, n, err = w.ask(ctx, held, everything)
		asked += n
		if again { // something that was passed over may be before what was found
			everything, asked = true, 0
			continue
		}
		if err != nil || len(c.Rows) > 0 || n == 0 || asked >= len(held) {
			break
		}
	}
	w.look.looked(everything, time.Since(began))
	if len(c.Rows) == 0 {
		w.grow()
	} else if asked < len(held) {
		more = true
	}
	return c, more, err
}

// ask makes one request. n is how many partitions there was room for.
func (w *worker) ask(ctx context.Context, held []int, everything bool) (c Claimed, more, again bool, n int, err error) {
	r, n := w.request(held, everything, nil)
	if len(held) == 0 && !r.Unadopted {
		return c, false, false, 0, nil
	}
	if c, err = w.d.store.Claim(ctx, r); err != nil {
		w.look.forget() // it may be another server now
		return c, false, false, 0, fmt.Errorf("claim: %w", err)
	}
	if more, again = w.look.learn(r, c); again {
		c.Rows, c.Critical = nil, nil
	}
	return c.without(r), more, again, n, nil
}

// request asks for what comes after the rows that are being settled or published.
func (w *worker) request(held []int, everything bool, publishing []OutboxRow) (r ClaimRequest, asked int) {
	d := w.d
	flying, room, early := w.settling.seqs(publishing), w.room, d.cfg.BatchSize
	if d.inFlight != nil {
		var n int
		flying, n, early = d.inFlight.seqs(d.cfg.BatchSize)
		room = max(0, d.cfg.BatchSize-n) // those that went before their turn come on top
	}
	r, asked = w.look.request(held, everything, room, flying, d.inFlight != nil)
	r.Now, r.Unadopted = d.cfg.Now(), w.n == 0 && !time.Now().Before(w.adoptAgain)
	if len(held) > 0 {
		r.Critical = early
	}
	return r, asked
}

// adopt takes in hand-written rows. If that fails, what was appended properly goes on.
func (w *worker) adopt(ctx context.Context) (int, error) {
	d := w.d
	now := d.cfg.Now()
	n, err := d.store.Adopt(ctx, AdoptRequest{Now: now, Limit: d.cfg.BatchSize, DeadLetterUntil: now.Add(d.cfg.DeadLetterRetention)})
	if crash := (*crashError)(nil); errors.As(err, &crash) {
		return n, err
	} else if err != nil {
		d.cfg.Logger.Error("dispatcher: adopting hand-written rows failed; will try again", "error", err)
		if n == 0 {
			w.adoptAgain = time.Now().Add(d.cfg.PollInterval)
		}
	}
	return n, nil
}
