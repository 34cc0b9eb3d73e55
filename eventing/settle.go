package eventing

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// settle marks rows as handed over.
func (d *Dispatcher) settle(ctx context.Context, rows []OutboxRow) (int, error) {
	if len(rows) == 0 {
		return 0, nil
	}
	if err := Fault(ctx, FaultPublished); err != nil {
		return 0, err
	}
	ctx, cancel := finishing(ctx)
	defer cancel()
	settled := 0
	for alike := range byVersion(rows) {
		n, err := d.store.Settle(ctx, SettleRequest{
			Holder: d.cfg.Holder, Now: d.cfg.Now(), Rows: alike, ByCompletion: d.inFlight != nil, Delete: d.cfg.DeleteSent,
			RoutingVersion: alike[0].version,
		})
		settled += n
		if err != nil {
			return settled, fmt.Errorf("settle: %w", err)
		}
		d.tell(alike)
	}
	if settled < len(rows) {
		d.leases.doubt() // somebody else has settled them, or taken over
	}
	return settled, nil
}

// byVersion returns the rows of each version of the routing table: all at once, unless the table
// has just changed.
func byVersion(rows []OutboxRow) iter.Seq[[]OutboxRow] {
	return func(yield func([]OutboxRow) bool) {
		for len(rows) > 0 {
			version := rows[0].version
			other := func(r OutboxRow) bool { return r.version != version }
			if !slices.ContainsFunc(rows, other) {
				yield(rows)
				return
			}
			alike := slices.DeleteFunc(slices.Clone(rows), other)
			rows = slices.DeleteFunc(slices.Clone(rows), func(r OutboxRow) bool { return !other(r) })
			if !yield(alike) {
				return
			}
		}
	}
}

// tell tells the observer of rows that are settled.
func (d *Dispatcher) tell(rows []OutboxRow) {
	if d.cfg.Observer == nil {
		return
	}
	counts := map[string]int{}
	for i := range rows {
		counts[rows[i].EventType]++
	}
	for eventType, n := range counts {
		d.observer.Published(eventType, n)
	}
}

// finishing returns a context that outlives another by stopGrace: what is out is settled,
// although the dispatcher is to stop, lest it be published again.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })
	return lasting, func() {
		stop()
		cancel()
	}
}

const stopGrace = 3 * time.Second

// settling is the settlement of a batch while the next one is claimed and published.
type settling struct {
	rows  []OutboxRow
	ended chan struct{}
	err   error
	hold  *hold
}

// settleLater settles a batch that is out as a whole. The next one, which comes after it
// in each partition, need not wait.
func (w *worker) settleLater(ctx context.Context, rows []OutboxRow) {
	s := &settling{rows: rows, ended: make(chan struct{})}
	w.settling = s
	go func() {
		defer close(s.ended)
		var n int
		if n, s.err = w.d.settle(ctx, rows); s.err == nil && n < len(rows) {
			s.err = errNotSettled
		}
	}()
}

// join waits for the settlement that is under way.
func (w *worker) join() error {
	s := w.settling
	if s == nil {
		return nil
	}
	<-s.ended
	w.settling = nil
	if s.hold != nil {
		s.hold.end()
	}
	if s.err != nil {
		w.look.forget()
	}
	if errors.Is(s.err, errNotSettled) {
		return nil // the leases are in doubt
	}
	return s.err
}

var errNotSettled = errors.New("some of the rows have been settled by somebody else, or are no longer held")

// seqs returns the rows that are being settled, and others, by partition.
func (s *settling) seqs(others []OutboxRow) map[int][]int64 {
	seqs := map[int][]int64{}
	for i := range others {
		seqs[others[i].Partition] = append(seqs[others[i].Partition], others[i].Seq)
	}
	if s != nil {
		for i := range s.rows {
			seqs[s.rows[i].Partition] = append(seqs[s.rows[i].Partition], s.rows[i].Seq)
		}
	}
	return seqs
}

// mark marks rows as published to their unordered consumers.
func (d *Dispatcher) mark(ctx context.Context, rows []OutboxRow) error {
	if len(rows) == 0 {
		return nil
	}
	if err := Fault(ctx, FaultPublished); err != nil {
		return err
	}
	ctx, cancel := finishing(ctx)
	defer cancel()
	if err := d.store.Expedite(ctx, SettleRequest{Holder: d.cfg.Holder, Now: d.cfg.Now(), Rows: rows}); err != nil {
		return fmt.Errorf("mark as expedited: %w", err)
	}
	return nil
}
