package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Due implements [eventing.ConsumerStore]. If it has nothing to claim, it does not
// wait for the open transaction.
func (s *Store) Due(ctx context.Context, r eventing.DueRequest) (runs []eventing.Run, err error) {
	if r.Ordered {
		err = s.read(ctx, func(tx *Tx) { runs = tx.dueHeads(r) })
		return runs, err
	}
	var due []delivery
	if err := s.read(ctx, func(tx *Tx) { due = tx.dueRetries(r) }); err != nil || len(due) == 0 {
		return nil, err
	}
	err = s.write(ctx, func(tx *Tx) error {
		for _, row := range tx.dueRetries(r) {
			row.claimToken, row.claimUntil = r.ClaimToken, r.ClaimUntil
			tx.deliveries.put(targetOf(row.Delivery), row)
			runs = append(runs, row.run(nil))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// dueRetries are an unordered consumer's deliveries that are to be claimed.
func (tx *Tx) dueRetries(r eventing.DueRequest) []delivery {
	exclude := setOf(r.Exclude)
	var due []delivery
	for _, row := range tx.store.deliveries.rows {
		ready := row.state == eventing.StateParked || row.state == eventing.StateRetrying && !row.dueAt.After(r.Now)
		if row.Consumer == r.Consumer && ready &&
			!row.claimUntil.After(r.Now) && !exclude[row.EventID] {
			due = append(due, *row)
		}
	}
	slices.SortFunc(due, func(a, b delivery) int {
		return cmp.Or(a.dueAt.Compare(b.dueAt), cmp.Compare(a.position, b.position))
	})
	return due[:min(len(due), max(r.Limit, 0))]
}

// dueHeads are the deliveries that an ordered consumer may run: of each key the
// head, whose predecessors have all left.
func (tx *Tx) dueHeads(r eventing.DueRequest) []eventing.Run {
	exclude := setOf(r.Exclude)
	leases := make(map[int]*eventing.Lease, len(r.Leases))
	for _, l := range r.Leases {
		leases[l.Partition] = &l
	}
	var heads []*delivery
	for l, q := range tx.store.lanes {
		if l.consumer != r.Consumer {
			continue
		}
		head := tx.deliveries.get(eventing.Target{EventID: q[0].id, Consumer: l.consumer})
		due := head.state == eventing.StateParked || head.state == eventing.StateRetrying && !head.dueAt.After(r.Now)
		if due && leases[head.Partition] != nil && !exclude[head.EventID] {
			heads = append(heads, head)
		}
	}
	slices.SortFunc(heads, func(a, b *delivery) int { return cmp.Compare(a.position, b.position) })
	heads = heads[:min(len(heads), max(r.Limit, 0))]
	runs := make([]eventing.Run, len(heads))
	for i, head := range heads {
		runs[i] = head.run(leases[head.Partition])
	}
	return runs
}

func (d *delivery) run(lease *eventing.Lease) eventing.Run {
	return eventing.Run{
		Delivery: d.Delivery, Found: d.state, Attempts: d.attempts, PriorAttempts: d.priorAttempts,
		History: slices.Clone(d.history), ClaimToken: d.claimToken, Lease: lease,
	}
}

// Forget implements [eventing.ConsumerStore]. It does nothing to a delivery whose
// event has not been processed after all: the conflict was another one.
func (s *Store) Forget(ctx context.Context, r eventing.Run, now time.Time) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := tx.rely(r.Lease); err != nil {
			return err
		}
		t := targetOf(r.Delivery)
		processed, d := tx.inbox.get(t), tx.deliveries.get(t)
		dl, died := tx.deadLetter(t)
		switch {
		case processed == nil:
		case d != nil && d.Force && d.Generation > processed.generation, died && dl.Generation > processed.generation:
			// A forced run is yet to do what it has to.
		default:
			tx.processed(r, now, time.Time{})
		}
		return nil
	})
}
