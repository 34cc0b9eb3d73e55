package transactions

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type bunShop struct {
	db     *bun.DB
	store  *pgstore.SQLStore
	outbox *eventing.Outbox[*sql.Tx]
}

func newBunShop(db *bun.DB) *bunShop {
	store := pgstore.NewSQL(db.DB)
	return &bunShop{db, store, eventing.NewOutbox(store, eventing.OutboxConfig{})}
}

// place places an order, with a gift if one is named and still to be had.
func (s *bunShop) place(ctx context.Context, number, gift string) error {
	err := s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&Order{number}).Exec(ctx); err != nil {
			return err
		}
		if err := s.outbox.Append(ctx, tx.Tx, eventing.New("order", number, OrderPlaced{number})); err != nil {
			return err
		}
		return s.reserve(ctx, tx, number, gift)
	})
	if err == nil {
		s.store.Wake() // without it the dispatchers find the row by notification or at the next poll
	}
	return err
}

// reserve runs in a nested transaction, which is a savepoint: where the gift is taken,
// its event is undone too, and the order goes on.
func (s *bunShop) reserve(ctx context.Context, tx bun.Tx, number, gift string) error {
	if gift == "" {
		return nil
	}
	return unlessTaken(tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := s.outbox.Append(ctx, tx.Tx, eventing.New("order", number, GiftReserved{number, gift})); err != nil {
			return err
		}
		_, err := tx.NewInsert().Model(&Gift{gift, number}).Exec(ctx)
		return err
	}))
}
