package eventing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// PruneRequest says what may go.
type PruneRequest struct {
	Now        time.Time
	SentBefore time.Time // settled outbox rows that were sent before this
	Limit      int       // rows of each table
}

// Pruned counts removed rows.
type Pruned struct {
	Outbox      int `json:"event_outbox"`
	Inbox       int `json:"processed_events"`
	DeadLetters int `json:"dead_letter_consumers"`
	Expired     int `json:"expired_open_dead_letters"` // discarded, not removed
}

func (p Pruned) most() int { return max(p.Outbox, p.Inbox, p.DeadLetters, p.Expired) }

// PruneStore removes what has expired.
type PruneStore interface {
	LeaseStore
	// Prune removes at most Limit rows of each table:
	//   - outbox rows, sent or failed, that were settled before SentBefore;
	//   - inbox rows past their expiry;
	//   - closed dead letters past their expiry, and dead-letter events without any;
	// but no outbox or inbox row of an event that a pending outbox row, a delivery in
	// trouble or an open dead letter can still reach, and no inbox row of an event
	// that has any outbox row, which [Requeue] could send again. Open dead letters past
	// their expiry are discarded with [ReasonExpired], unless something waits behind
	// them.
	Prune(ctx context.Context, r PruneRequest) (Pruned, error)
}

// PrunerConfig configures a [Pruner]. The zero value is good.
type PrunerConfig struct {
	// SentRetention is how long settled outbox rows are kept: as far back can
	// [Requeue] reach. Default: 24 h.
	SentRetention time.Duration
	// Interval between two rounds. Default: 1 min.
	Interval time.Duration
	// BatchSize bounds the rows of one statement. Default: 1,000.
	BatchSize int
	// Logger. Default: slog.Default().
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Pruner removes, in bounded batches, what has expired. Of several on one store, in
// whatever process, one works at a time.
type Pruner struct {
	store  PruneStore
	cfg    PrunerConfig
	holder string
}

// pruneScope has one partition. Its lease outlives a batch, however slow.
const (
	pruneScope    = "prune"
	pruneLeaseTTL = time.Minute
)

// NewPruner returns a pruner of a store.
func NewPruner(store PruneStore, cfg PrunerConfig) (*Pruner, error) {
	if cfg.SentRetention == 0 {
		cfg.SentRetention = 24 * time.Hour
	}
	if cfg.Interval == 0 {
		cfg.Interval = time.Minute
	}
	if cfg.BatchSize == 0 {
		cfg.BatchSize = 1000
	}
	if cfg.SentRetention < 0 || cfg.Interval < 0 || cfg.BatchSize < 0 {
		return nil, fmt.Errorf("pruner: SentRetention, Interval and BatchSize must be positive")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Pruner{store, cfg, NewID()}, nil
}

// Run prunes until ctx ends. Errors are logged and tried again in the next
// round; Run returns nil.
func (p *Pruner) Run(ctx context.Context) error {
	tick := time.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		if _, err := p.PruneOnce(ctx); err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("pruner: will try again", "error", err, "in", p.cfg.Interval)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// PruneOnce removes all that has expired, batch by batch; nothing, if another pruner is
// at it.
func (p *Pruner) PruneOnce(ctx context.Context) (total Pruned, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, p.store.ReleaseLeases(ctx, pruneScope, p.holder, nil))
	}()
	for {
		now := p.cfg.Now()
		table, err := p.store.AcquireLeases(ctx, LeaseRequest{
			Scope: pruneScope, Holder: p.holder, Now: now, Until: now.Add(pruneLeaseTTL), Partitions: []int{0},
		})
		if err != nil || len(table.Held) == 0 {
			return total, err
		}
		n, err := p.store.Prune(ctx, PruneRequest{Now: now, SentBefore: now.Add(-p.cfg.SentRetention), Limit: p.cfg.BatchSize})
		total.Outbox += n.Outbox
		total.Inbox += n.Inbox
		total.DeadLetters += n.DeadLetters
		total.Expired += n.Expired
		if err != nil || n.most() < p.cfg.BatchSize {
			return total, err
		}
	}
}
