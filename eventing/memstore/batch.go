package memstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

// Untouched implements [eventing.BatchStore].
func (s *Store) Untouched(ctx context.Context, ds []eventing.Delivery) ([]bool, error) {
	untouched := make([]bool, len(ds))
	err := s.read(ctx, func(tx *Tx) {
		for i, d := range ds {
			f := tx.found(d)
			_, died := tx.deadLetter(targetOf(d))
			untouched[i] = !f.Processed && f.State == eventing.StateNone && !died && !f.KeyBusy
		}
	})
	return untouched, err
}

// SucceedAll implements [eventing.BatchStore]. Effect and Finish get a [*Tx].
func (s *Store) SucceedAll(ctx context.Context, b eventing.BatchSuccess) error {
	return s.write(ctx, func(tx *Tx) error {
		if err := b.Effect(ctx, tx); err != nil {
			return err
		}
		if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
			return err
		}
		for i := range b.Leases {
			if err := tx.rely(&b.Leases[i]); err != nil {
				return err
			}
		}
		for _, id := range b.EventIDs {
			run := eventing.Run{Delivery: eventing.Delivery{Consumer: b.Consumer, EventID: id}}
			if err := tx.concludable(run); err != nil {
				return err
			}
			tx.inbox.put(targetOf(run.Delivery), inboxRow{until: b.InboxUntil})
		}
		if b.Finish != nil {
			if err := b.Finish(ctx, tx); err != nil {
				return err
			}
		}
		return eventing.Fault(ctx, eventing.FaultConcluding)
	})
}
