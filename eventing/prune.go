package eventing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	// Also counts what the functions of [PrunerConfig.Also] removed, where it is anything.
	Also map[string]int `json:"also,omitempty"`
}

func (p *Pruned) add(n Pruned) {
	p.Outbox += n.Outbox
	p.Inbox += n.Inbox
	p.DeadLetters += n.DeadLetters
	p.Expired += n.Expired
}

func (p *Pruned) addAlso(name string, removed int) {
	if removed == 0 {
		return
	}
	if p.Also == nil {
		p.Also = map[string]int{}
	}
	p.Also[name] += removed
}

// PruneFunc removes, in one bounded batch, what has expired until now of a table beside the store's
// own: at most limit rows. If it has removed that many, it is called again at once. It must be done
// within a minute, as long as the pruner's lease lasts; two at the same time, after a pause of the process, must do no harm.
type PruneFunc func(ctx context.Context, now time.Time, limit int) (removed int, err error)

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
	// Also are further tables to prune in the same rounds, by names that [Pruned] counts them
	// under. The error of one keeps no other from being pruned. Default: none.
	Also map[string]PruneFunc
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
	for name, prune := range cfg.Also {
		if name == "" || prune == nil {
			return nil, fmt.Errorf("pruner: Also has %q: each needs a name and a function", name)
		}
	}
	cfg.Also = maps.Clone(cfg.Also)
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
// at it. Where pruning one table fails, it goes on with the others: the error tells of all.
func (p *Pruner) PruneOnce(ctx context.Context) (total Pruned, err error) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, p.store.ReleaseLeases(ctx, pruneScope, p.holder, nil))
	}()
	batches := p.batches(&total)
	for len(batches) > 0 {
		var unfinished []pruneBatch
		for _, prune := range batches {
			now := p.cfg.Now()
			held, leaseErr := p.lease(ctx, now)
			if leaseErr != nil || !held {
				return total, errors.Join(err, leaseErr)
			}
			more, pruneErr := prune(ctx, now)
			err = errors.Join(err, pruneErr)
			if more && pruneErr == nil {
				unfinished = append(unfinished, prune)
			}
		}
		batches = unfinished
	}
	return total, err
}

// pruneBatch removes one batch, and says whether there may be more.
type pruneBatch func(ctx context.Context, now time.Time) (more bool, err error)

// batches returns what there is to prune: the store, and what else the config has, by name.
func (p *Pruner) batches(total *Pruned) []pruneBatch {
	batches := []pruneBatch{func(ctx context.Context, now time.Time) (bool, error) {
		n, err := p.store.Prune(ctx, PruneRequest{Now: now, SentBefore: now.Add(-p.cfg.SentRetention), Limit: p.cfg.BatchSize})
		total.add(n)
		return max(n.Outbox, n.Inbox, n.DeadLetters, n.Expired) >= p.cfg.BatchSize, err
	}}
	for _, name := range slices.Sorted(maps.Keys(p.cfg.Also)) {
		batches = append(batches, func(ctx context.Context, now time.Time) (bool, error) {
			n, err := p.cfg.Also[name](ctx, now, p.cfg.BatchSize)
			total.addAlso(name, n)
			if err != nil {
				err = fmt.Errorf("prune %s: %w", name, err)
			}
			return n >= p.cfg.BatchSize, err
		})
	}
	return batches
}

// lease takes or renews the lease of those who prune this store.
func (p *Pruner) lease(ctx context.Context, now time.Time) (held bool, err error) {
	table, err := p.store.AcquireLeases(ctx, LeaseRequest{
		Scope: pruneScope, Holder: p.holder, Now: now, Until: now.Add(pruneLeaseTTL), Partitions: []int{0},
	})
	return err == nil && len(table.Held) > 0, err
}
