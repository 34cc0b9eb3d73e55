package transactions

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type pgxShop struct {
	pool   *pgxpool.Pool
	store  *pgstore.Store
	outbox *eventing.Outbox[pgx.Tx]
}

func newPgxShop(pool *pgxpool.Pool) *pgxShop {
	store := pgstore.New(pool)
	return &pgxShop{pool, store, eventing.NewOutbox(store, eventing.OutboxConfig{})}
}

// place places an order, with a gift if one is named and still to be had.
func (s *pgxShop) place(ctx context.Context, number, gift string) error {
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (number) VALUES ($1)`, number); err != nil {
			return err
		}
		if err := s.outbox.Append(ctx, tx, eventing.New("order", number, OrderPlaced{number})); err != nil {
			return err
		}
		return s.reserve(ctx, tx, number, gift)
	})
	if err == nil {
		s.store.Wake() // without it the dispatchers find the row by notification or at the next poll
	}
	return err
}

// reserve runs in a savepoint: where the gift is taken, its event is undone too, and
// the order goes on.
func (s *pgxShop) reserve(ctx context.Context, tx pgx.Tx, number, gift string) error {
	if gift == "" {
		return nil
	}
	return unlessTaken(pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := s.outbox.Append(ctx, tx, eventing.New("order", number, GiftReserved{number, gift})); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO gifts (name, number) VALUES ($1, $2)`, gift, number)
		return err
	}))
}
