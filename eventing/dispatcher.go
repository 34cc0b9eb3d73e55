package eventing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"
)

// DispatchStore is what a [Dispatcher] needs of a store.
type DispatchStore interface {
	LeaseStore
	// Adopt takes in rows whose partition is null, the oldest first, each in a
	// transaction that is conditional on the row's being still unadopted, and
	// returns how many it took:
	//   - the payload fails [CompleteRow] (not asked of synthetic event IDs that
	//     have dead letters): status failed, and a dead letter of stage decode
	//     without a consumer, under the ID that [Undecodable] derives;
	//   - the event has open dead letters: each whose delivery is dead, or which
	//     has no delivery, is replayed (see DeadLetterStore.Replay; also if it is
	//     replayed already), and the row is deleted;
	//   - all of its dead letters are closed: status sent, under a row ID of its own,
	//     so that the hand-written one is free again;
	//   - else the row that CompleteRow returns takes its place.
	// A row that fails does not keep it from the others; the error tells of all.
	Adopt(ctx context.Context, r AdoptRequest) (int, error)
	// Claim returns pending rows that are due, of the given partitions, in the
	// order of Seq. It leaves out rows whose ordering key is held by an open dead
	// letter (see DispatchFailure.HoldKey), but never a replay.
	Claim(ctx context.Context, r ClaimRequest) ([]OutboxRow, error)
	// Settle marks rows that are still pending, and whose partition the holder
	// has leased until after Now, as sent; if ByCompletion, as failed where a
	// consumer has a pending or reviewed dead letter of the event (of stage handle
	// or decode; of a row with a Consumer, only that one's counts). A settled row of
	// generation > 0 without a Consumer closes the event's replayed dead letter
	// without a consumer as resolved. It returns how many it marked.
	Settle(ctx context.Context, r SettleRequest) (int, error)
	// FailDispatch, in one transaction, if the row is still pending and its partition
	// held: status failed, and a dead letter of stage dispatch for the row's Consumer.
	FailDispatch(ctx context.Context, f DispatchFailure) error
	// Sleep returns a channel that gets a value when somebody calls Wake.
	Sleep() (woken <-chan struct{}, stop func())
}

// ClaimRequest asks for rows to publish.
type ClaimRequest struct {
	Partitions []int
	Now        time.Time
	Limit      int
	Exclude    []int64 // Seq of rows in flight
}

// SettleRequest names rows that have been handed over.
type SettleRequest struct {
	Holder       string
	Now          time.Time
	Rows         []OutboxRow
	ByCompletion bool // the consumers have concluded too
}

// DispatchFailure is a row that cannot be published.
type DispatchFailure struct {
	Row     OutboxRow
	Holder  string
	Reason  ReasonCode
	Message string
	// HoldKey: later rows of the ordering key wait until the dead letter is closed.
	HoldKey bool
	Now     time.Time
	// DeadLetterUntil is the expiry of the dead letter.
	DeadLetterUntil time.Time
}

// CompletionPublisher is a publisher in the same process as its subscribers,
// such as the in-process broker. It tells when a message has been handled, and
// the dispatcher settles no earlier: a crash before leaves the row pending.
type CompletionPublisher interface {
	message.Publisher
	// PublishWithCompletion takes the messages without waiting for anybody. done is
	// called once for each: with nil after every subscriber has acked it, with an
	// error if that cannot happen any more. If it returns an error, it has taken
	// none, and done is not called.
	PublishWithCompletion(topic string, done func(m *message.Message, err error), msgs ...*message.Message) error
}

// DispatcherConfig configures a [Dispatcher]. The zero value is good.
type DispatcherConfig struct {
	// BatchSize is how many rows are claimed at a time, and with a
	// [CompletionPublisher] how many are in flight, at most an eighth of them of one
	// partition, so that a slow key does not hold up the others. Default: 1,000.
	BatchSize int
	// PollInterval is the longest time between two looks at the outbox. Default: 500 ms.
	PollInterval time.Duration
	// LeaseTTL is after how long another dispatcher takes over from one that
	// died. Default: 5 s. At least 100 ms.
	LeaseTTL time.Duration
	// DeadLetterRetention is how long a dead letter that the dispatcher opens
	// is kept. Default: 90 days.
	DeadLetterRetention time.Duration
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Holder names this dispatcher in the leases. Default: an ID of the process.
	// Two dispatchers of one process that are to exclude each other need two.
	Holder string
}

func (c DispatcherConfig) withDefaults() (DispatcherConfig, error) {
	if c.BatchSize == 0 {
		c.BatchSize = 1000
	}
	if c.PollInterval == 0 {
		c.PollInterval = 500 * time.Millisecond
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = 5 * time.Second
	}
	if c.DeadLetterRetention == 0 {
		c.DeadLetterRetention = 90 * 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Holder = or(c.Holder, processHolder())
	switch {
	case c.BatchSize < 1 || c.BatchSize > 10_000:
		return c, fmt.Errorf("dispatcher: BatchSize is %d; it must be from 1 to 10,000", c.BatchSize)
	case c.PollInterval < 0:
		return c, fmt.Errorf("dispatcher: PollInterval is %v; it must be positive", c.PollInterval)
	case c.LeaseTTL < 100*time.Millisecond:
		return c, fmt.Errorf("dispatcher: LeaseTTL is %v; it must be at least 100ms", c.LeaseTTL)
	case c.DeadLetterRetention < 0:
		return c, fmt.Errorf("dispatcher: DeadLetterRetention is %v; it must be positive", c.DeadLetterRetention)
	}
	return c, nil
}

// Dispatcher takes rows from the outbox to the broker: claim, route, publish,
// settle. If it dies, what was published and not settled is published again by
// the next one: delivery is at least once.
type Dispatcher struct {
	store  DispatchStore
	pub    message.Publisher
	routes Routes
	cfg    DispatcherConfig
	leases *leaseholder

	pass    sync.Mutex // one pass at a time
	standby bool       // another dispatcher holds all leases
	// taken are topics that took their message of a row while another of its topics did
	// not: in the next pass they need not take it again.
	taken    map[int64][]string
	inFlight *flights // nil unless pub settles by completion
}

// NewDispatcher returns a dispatcher from store to pub. Events of a type that
// routes does not know become dead letters: no event is dropped silently.
func NewDispatcher(store DispatchStore, pub message.Publisher, routes Routes, cfg DispatcherConfig) (*Dispatcher, error) {
	if store == nil || pub == nil || routes == nil {
		return nil, errors.New("dispatcher: a store, a publisher and routes are needed")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		store: store, pub: pub, routes: routes, cfg: cfg,
		leases: &leaseholder{store: store, scope: DispatchScope, holder: cfg.Holder, ttl: cfg.LeaseTTL, now: cfg.Now},
	}
	if _, ok := pub.(CompletionPublisher); ok {
		d.inFlight = newFlights()
	}
	return d, nil
}

// Run dispatches until ctx ends, and then settles what has been handed over
// and gives its leases back. Errors of the store or the broker are logged, and
// tried again with growing waits; Run returns nil.
func (d *Dispatcher) Run(ctx context.Context) error {
	woken, stop := d.store.Sleep()
	defer stop()
	var keeper sync.WaitGroup
	keeper.Go(func() {
		d.leases.keep(ctx, func(err error) { d.cfg.Logger.Warn("dispatcher: renewing the leases failed", "error", err) })
	})
	defer func() {
		keeper.Wait()
		d.finish(context.WithoutCancel(ctx))
	}()

	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		n, err := d.DispatchOnce(ctx)
		pause := d.cfg.PollInterval
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return nil
			}
			pause = wait.NextBackOff()
			d.cfg.Logger.Warn("dispatcher: will try again", "error", err, "in", pause)
		case n >= d.cfg.BatchSize:
			wait.Reset()
			continue
		default:
			wait.Reset()
		}
		d.sleep(ctx, pause, woken, err != nil)
	}
	return nil
}

// sleep waits for work; after an error, for the whole pause.
func (d *Dispatcher) sleep(ctx context.Context, pause time.Duration, woken <-chan struct{}, whole bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var completed <-chan struct{}
	if d.inFlight != nil {
		completed = d.inFlight.landed
	}
	if whole {
		woken, completed = nil, nil
	}
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-woken:
	case <-completed:
	}
}

// finish settles what completed meanwhile and lets the leases go.
func (d *Dispatcher) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d.pass.Lock()
	defer d.pass.Unlock()
	if _, err := d.settleCompleted(ctx); err != nil {
		d.cfg.Logger.Warn("dispatcher: settling at the end failed; what it was will be published again", "error", err)
	}
	if err := d.leases.release(ctx); err != nil {
		d.cfg.Logger.Warn("dispatcher: giving the leases back failed; they expire", "error", err)
	}
}

// DispatchOnce makes one pass: settle what has completed, adopt hand-written
// rows, then claim, publish and settle one batch. It returns how many rows it
// dealt with. For tests, and for those who have a scheduler of their own.
func (d *Dispatcher) DispatchOnce(ctx context.Context) (int, error) {
	d.pass.Lock()
	defer d.pass.Unlock()
	if err := d.leases.refresh(ctx); err != nil {
		return 0, fmt.Errorf("take the leases: %w", err)
	}
	total, err := d.settleCompleted(ctx)
	if err != nil {
		return total, err
	}
	now := d.cfg.Now()
	n, err := d.store.Adopt(ctx, AdoptRequest{Now: now, Limit: d.cfg.BatchSize, DeadLetterUntil: now.Add(d.cfg.DeadLetterRetention)})
	total += n
	if crash := (*crashError)(nil); errors.As(err, &crash) {
		return total, err
	} else if err != nil { // what was appended properly goes on
		d.cfg.Logger.Error("dispatcher: adopting hand-written rows failed; will try again", "error", err)
	}
	rows, err := d.claim(ctx)
	if err != nil || len(rows) == 0 {
		return total, err
	}
	n, err = d.publish(ctx, rows)
	return total + n, err
}

func (d *Dispatcher) claim(ctx context.Context) ([]OutboxRow, error) {
	r := ClaimRequest{Now: d.cfg.Now(), Limit: d.cfg.BatchSize}
	full := map[int]bool{}
	if d.inFlight != nil {
		r.Exclude, full = d.inFlight.seqs(max(1, d.cfg.BatchSize/8))
		r.Limit -= len(r.Exclude)
	}
	for _, l := range d.leases.live() {
		if !full[l.Partition] {
			r.Partitions = append(r.Partitions, l.Partition)
		}
	}
	if len(r.Partitions) == 0 || r.Limit <= 0 {
		if held := len(d.leases.live()); held == 0 && !d.standby {
			d.standby = true
			d.cfg.Logger.Info("dispatcher: another holds all leases; standing by")
		}
		return nil, nil
	}
	d.standby = false
	rows, err := d.store.Claim(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return rows, Fault(ctx, FaultClaimed)
}

// settle marks rows as handed over.
func (d *Dispatcher) settle(ctx context.Context, rows []OutboxRow) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if err := Fault(ctx, FaultPublished); err != nil {
		return 0, err
	}
	n, err := d.store.Settle(ctx, SettleRequest{
		Holder: d.cfg.Holder, Now: d.cfg.Now(), Rows: rows, ByCompletion: d.inFlight != nil,
	})
	if err != nil {
		return n, fmt.Errorf("settle: %w", err)
	}
	if n < len(rows) {
		d.leases.doubt() // somebody else has settled them, or taken over
	}
	return n, nil
}

// fail takes a row that cannot be published out of the outbox.
func (d *Dispatcher) fail(ctx context.Context, row OutboxRow, reason ReasonCode, err error, holdKey bool) error {
	d.cfg.Logger.Error("dispatcher: the event cannot be published and is now a dead letter",
		"event_id", row.EventID, "event_type", row.EventType, "reason", reason, "error", err)
	now := d.cfg.Now()
	if err := d.store.FailDispatch(ctx, DispatchFailure{
		Row: row, Holder: d.cfg.Holder, Reason: reason, Message: truncate(err.Error()),
		HoldKey: holdKey, Now: now, DeadLetterUntil: now.Add(d.cfg.DeadLetterRetention),
	}); err != nil {
		return fmt.Errorf("dead-letter %s: %w", row.EventID, err)
	}
	return nil
}

var errNoRoute = errors.New("no consumer is routed for this type of event; register a handler, or declare that nobody needs it")
