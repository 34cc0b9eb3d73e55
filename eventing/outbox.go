package eventing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// OutboxRow is something to send: an appended event, or the replay of a dead
// letter.
type OutboxRow struct {
	Seq         int64  // assigned by the database when the row is inserted
	ID          string // of the row; an event's first row has the event's ID
	EventID     string
	EventType   string
	Payload     []byte // the encoded envelope
	OrderingKey string
	Partition   int
	CreatedAt   time.Time
	DueAt       time.Time // zero: at once
	Consumer    string    // the only consumer that it is for; empty: all that are routed
	Generation  int       // of a replay, from 1; 0 otherwise
	Force       bool      // a replay that runs although its consumer has processed the event
	Lane        Lane

	version string // of the table that routes it, once a dispatcher has
}

// OutboxStore is what an [Outbox] needs of a store whose transactions are of
// type Tx.
type OutboxStore[Tx any] interface {
	// InTx runs fn in a transaction of its own, which it commits if fn returns
	// nil and rolls back otherwise. It returns fn's error as it is.
	InTx(ctx context.Context, fn func(tx Tx) error) error
	// AppendRows inserts the rows, pending, in their order.
	AppendRows(ctx context.Context, tx Tx, rows []OutboxRow) error
	// LockKeys holds off, until tx ends, other transactions that lock one of
	// these ordering keys. The keys are sorted and distinct. A store with a
	// single writer has nothing to do.
	LockKeys(ctx context.Context, tx Tx, keys []string) error
	// Wake tells the dispatchers of this process to look now.
	Wake()
}

// OutboxConfig configures an [Outbox]. The zero value is good.
type OutboxConfig struct {
	// SerializeKeys makes Append hold a lock on each ordering key until the
	// transaction ends, so that events of a key are appended in the order of
	// their commits. Needed for ordered consumers unless the key's writers are
	// serialised anyway, by a lock on the aggregate for example.
	SerializeKeys bool
	// Lane says which lane the events take that name none themselves: [Critical], or "" for none. It gets
	// the event as it is stored, completed. It must be pure: it is called again if an append is. Any
	// other lane is an [*InvalidEventError]. Default: none.
	Lane func(e Envelope) Lane
	// Tracer makes the spans of appends. Default: none.
	Tracer Tracer
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Outbox appends events in transactions of type Tx: those of the database that
// the application writes to. It is safe for concurrent use.
type Outbox[Tx any] struct {
	store OutboxStore[Tx]
	cfg   OutboxConfig
}

// NewOutbox returns the outbox of a store.
func NewOutbox[Tx any](store OutboxStore[Tx], cfg OutboxConfig) *Outbox[Tx] {
	return &Outbox[Tx]{store, cfg}
}

// Append adds the events to the outbox as part of tx: they will be dispatched,
// at least once, if and only if tx commits. They are completed (see [Header])
// and checked first: an [*InvalidEventError] says which one is at fault, and
// nothing has been written then. After any other error roll tx back. A store may
// write them as late as the commit, which fails if that does: pgstore with pgx.
//
// Dispatchers find the events at once where the store tells of them, as Postgres does, or
// within their poll interval; with [Outbox.InTx], those of this process at once.
func (o *Outbox[Tx]) Append(ctx context.Context, tx Tx, events ...Appendable) error {
	if len(events) == 0 {
		return nil
	}
	if o.cfg.Tracer == nil {
		return o.append(ctx, tx, events)
	}
	ctx, end := o.cfg.Tracer.Append(ctx, len(events))
	err := o.append(ctx, tx, events)
	end(err)
	return err
}

func (o *Outbox[Tx]) append(ctx context.Context, tx Tx, events []Appendable) error {
	rows := make([]OutboxRow, len(events))
	for i, e := range events {
		row, err := o.cfg.Row(ctx, e)
		if err != nil {
			return err
		}
		rows[i] = row
	}
	if o.cfg.SerializeKeys {
		if keys := orderingKeys(rows); len(keys) > 0 {
			if err := o.store.LockKeys(ctx, tx, keys); err != nil {
				return err
			}
		}
	}
	return o.store.AppendRows(ctx, tx, rows)
}

// InTx runs fn in a transaction and, after its commit, has the dispatchers of
// this process look at once. If fn fails, nothing it did has happened.
func (o *Outbox[Tx]) InTx(ctx context.Context, fn func(tx Tx) error) error {
	if inTxOf(ctx, o.store) {
		return errNestedTx
	}
	err := o.store.InTx(ctx, func(tx Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return Fault(ctx, FaultAppended)
	})
	if err == nil {
		o.store.Wake()
	}
	return err
}

var errNestedTx = errors.New("InTx in a handler that has a transaction of the same store: it would wait for itself where there is one writer; append with the handler's transaction")

// Row makes the row of an event, as [Outbox.Append] does of each: completes the event with
// what ctx carries, checks it and encodes it. An error is an [*InvalidEventError]. A store's
// AppendRows writes it; so what takes time is done before the transaction begins.
func (c OutboxConfig) Row(ctx context.Context, a Appendable) (OutboxRow, error) {
	e, err := a.envelope()
	if err != nil {
		return OutboxRow{}, err
	}
	now := time.Now().UTC()
	if c.Now != nil {
		now = c.Now().UTC()
	}
	if e.ID == "" {
		e.ID = newID(now)
	}
	traceParent, traceState := TraceContext(ctx)
	e.complete(Header{
		OccurredAt: now, CorrelationID: CorrelationID(ctx), CausationID: CausationID(ctx),
		TraceParent: traceParent, TraceState: traceState,
	})
	payload, err := EncodeEnvelope(e)
	if err != nil {
		return OutboxRow{}, err
	}
	if isSynthetic(e.ID) {
		return OutboxRow{}, &InvalidEventError{EventID: e.ID, Field: "event_id", Problem: "begins with " + undecodablePrefix + ", which is reserved"}
	}
	lane := e.Lane
	if lane == "" && c.Lane != nil {
		lane = c.Lane(e)
	}
	if lane != "" && lane != Critical {
		return OutboxRow{}, &InvalidEventError{EventID: e.ID, Field: "lane", Problem: fmt.Sprintf("is %q; there is only %q", lane, Critical)}
	}
	key := e.OrderKey()
	return OutboxRow{
		ID: e.ID, EventID: e.ID, EventType: e.Type, Payload: payload, OrderingKey: key,
		Partition: PartitionOf(key, e.ID), CreatedAt: now, DueAt: e.DueAt, Lane: lane,
	}, nil
}

// orderingKeys returns the rows' keys, sorted: transactions that lock several
// keys do so in one order and cannot deadlock.
func orderingKeys(rows []OutboxRow) []string {
	var keys []string
	for _, r := range rows {
		if r.OrderingKey != "" {
			keys = append(keys, r.OrderingKey)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Waker passes wake-ups from those who commit to the dispatchers of the same
// process. Stores embed one. A wake-up is a hint: who misses it finds the row
// at the next poll.
type Waker struct {
	mu       sync.Mutex
	sleepers map[chan struct{}]struct{}
}

// Wake wakes all sleepers. It does not block.
func (w *Waker) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.sleepers {
		select {
		case c <- struct{}{}:
		default: // it has not yet seen the last one
		}
	}
}

// Sleep returns a channel that gets a value after each Wake, several of them
// folded into one, and a function that ends this.
func (w *Waker) Sleep() (woken <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sleepers == nil {
		w.sleepers = make(map[chan struct{}]struct{})
	}
	w.sleepers[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.sleepers, c)
	}
}
