package backend

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/store"
)

// transactional is the library's store with its transactions.
type transactional[Tx any] interface {
	store.Library
	eventing.OutboxStore[Tx]
}

// telling is a store that appends to the outbox for each event that dies at a consumer, in the transaction that
// opens the dead letter, so that neither is without the other.
type telling[Tx any] struct {
	transactional[Tx]

	row func(eventing.Failure) (eventing.OutboxRow, error)
}

// tellWith returns what makes such a store of another one.
func tellWith[Tx any](events store.Library, row func(eventing.Failure) (eventing.OutboxRow, error)) store.Library {
	return telling[Tx]{events.(transactional[Tx]), row}
}

// Fail implements [eventing.ConsumerStore].
func (s telling[Tx]) Fail(ctx context.Context, f eventing.Failure) error {
	if f.State == eventing.StateDead {
		f.Finish = s.tell(f)
	}
	return s.transactional.Fail(ctx, f)
}

// Quarantine implements [eventing.ConsumerStore].
func (s telling[Tx]) Quarantine(ctx context.Context, f eventing.Failure) error {
	f.Finish = s.tell(f)
	return s.transactional.Quarantine(ctx, f)
}

// tell returns what runs last in the transaction of a failure.
func (s telling[Tx]) tell(f eventing.Failure) func(context.Context, any) error {
	return func(ctx context.Context, tx any) error {
		if f.Finish != nil {
			if err := f.Finish(ctx, tx); err != nil {
				return err
			}
		}
		row, err := s.row(f)
		if err != nil {
			return fmt.Errorf("tell of the death of event %s: %w", f.EventID, err)
		}
		return s.AppendRows(ctx, tx.(Tx), []eventing.OutboxRow{row})
	}
}
