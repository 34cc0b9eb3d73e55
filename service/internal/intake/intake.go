// Package intake takes accepted events over durably: into ledger and outbox in one
// transaction, which concurrent requests share, or, with [Direct], straight into the broker.
package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
)

// Config configures an [Intake].
type Config struct {
	Store Store // required
	// Direct: the store, a [Direct], gets each request's entry, also if others of the group have its
	// idempotency key, which then are not compared. Entries have no rows. Default: it gets the first of each key.
	Direct bool
	// Outbox says how the entries' rows are made.
	Outbox eventing.OutboxConfig
	// Timeout bounds a transaction. Default: 10 s.
	Timeout time.Duration
	// MaxWait bounds how long an event waits for the end of its transaction. Default: 10 s.
	MaxWait time.Duration
	// MaxGroup bounds the events of a transaction. Default: 256.
	MaxGroup int
	// MaxGroupBytes bounds their size; one event may be larger. Default: 4 MiB.
	MaxGroupBytes int
	// MaxWaiting bounds the events that wait for a transaction. Default: 4,096.
	MaxWaiting int
	// MaxWaitingBytes bounds their size. Default: 64 MiB.
	MaxWaitingBytes int
}

// Intake implements [httpapi.Acceptor]. While no transaction is under way, an event has one to
// itself, at once; those that come meanwhile go together in the next. Nothing lingers: a
// group is as large as what came while the last was committed.
type Intake struct {
	cfg  Config
	ctx  context.Context // of the transactions: no request's end cancels them
	stop context.CancelFunc

	committer sync.WaitGroup

	mu      sync.Mutex
	waiting []*request
	bytes   int  // of those that wait
	running bool // the committer
	closed  bool
}

var _ httpapi.Acceptor = (*Intake)(nil)

// request is an event that somebody waits for.
type request struct {
	entry  *Entry
	size   int
	answer chan answer // has room for the only one
	gone   atomic.Bool // nobody waits any longer
}

type answer struct {
	traceID string
	err     error
}

// New returns an intake. The caller closes it.
func New(cfg Config) *Intake {
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.MaxWait = cmp.Or(cfg.MaxWait, 10*time.Second)
	cfg.MaxGroup = cmp.Or(cfg.MaxGroup, 256)
	cfg.MaxGroupBytes = cmp.Or(cfg.MaxGroupBytes, 4<<20)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 4096)
	cfg.MaxWaitingBytes = cmp.Or(cfg.MaxWaitingBytes, 64<<20)
	i := &Intake{cfg: cfg}
	i.ctx, i.stop = context.WithCancel(context.Background())
	return i
}

// Accept implements [httpapi.Acceptor]. When ctx ends first, or the time to wait, the event may be stored all the
// same: its commit goes on.
func (i *Intake) Accept(ctx context.Context, e courier.Event, payload courier.Payload, bodyHash string) (traceID string, err error) {
	entry, err := i.newEntry(e, payload.ShipmentID, bodyHash)
	if err != nil {
		return "", fmt.Errorf("accept %s: %w", e.EventID, err)
	}
	r := &request{entry: entry, size: len(entry.Envelope.Payload) + len(entry.Row.Payload), answer: make(chan answer, 1)}
	if err := i.enqueue(r); err != nil {
		return "", err
	}
	patience := time.NewTimer(i.cfg.MaxWait) // costs half of a context's
	defer patience.Stop()
	select {
	case a := <-r.answer:
		return a.traceID, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-patience.C:
		err = errTooLong
	}
	r.gone.Store(true)
	return "", fmt.Errorf("accept %s: %w", e.EventID, err)
}

var (
	errClosed  = errors.New("the intake is closed")
	errTooLong = errors.New("it has waited for too long")
)

func (i *Intake) enqueue(r *request) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return errClosed
	case len(i.waiting) >= i.cfg.MaxWaiting, len(i.waiting) > 0 && i.bytes+r.size > i.cfg.MaxWaitingBytes:
		return httpapi.ErrBusy
	}
	i.waiting = append(i.waiting, r)
	i.bytes += r.size
	if !i.running {
		i.running = true
		i.committer.Go(i.work)
	}
	return nil
}

// work commits one group after the other until nothing waits.
func (i *Intake) work() {
	for group := i.take(); group != nil; group = i.take() {
		i.commit(group)
	}
}

// take returns those that have waited longest, as many as go together. None: the
// committer ends.
func (i *Intake) take() []*request {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, size := 0, 0
	for _, r := range i.waiting {
		if n > 0 && (n == i.cfg.MaxGroup || size+r.size > i.cfg.MaxGroupBytes) {
			break
		}
		n, size = n+1, size+r.size
	}
	if n == 0 {
		i.running = false
		return nil
	}
	group := i.waiting[:n:n]
	i.waiting = i.waiting[n:]
	if len(i.waiting) == 0 {
		i.waiting = nil
	}
	i.bytes -= size
	return group
}

// Close refuses what comes from now on, and waits until all that waits is answered. When
// ctx ends first, it cancels what is under way.
func (i *Intake) Close(ctx context.Context) error {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	stop := context.AfterFunc(ctx, i.stop)
	defer i.stop()
	defer stop()
	i.committer.Wait()
	return ctx.Err()
}
