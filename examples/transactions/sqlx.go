package transactions

import (
	"context"
	"database/sql"

	"github.com/jmoiron/sqlx"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type sqlxShop struct {
	db     *sqlx.DB
	store  *pgstore.SQLStore
	outbox *eventing.Outbox[*sql.Tx]
}

func newSQLXShop(db *sqlx.DB) *sqlxShop {
	store := pgstore.NewSQL(db.DB)
	return &sqlxShop{db, store, eventing.NewOutbox(store, eventing.OutboxConfig{})}
}

// place places an order, with a gift if one is named and still to be had.
func (s *sqlxShop) place(ctx context.Context, number, gift string) error {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing is left to it after the commit
	if _, err := tx.NamedExecContext(ctx, `INSERT INTO orders (number) VALUES (:number)`, Order{number}); err != nil {
		return err
	}
	if err := s.outbox.Append(ctx, tx.Tx, eventing.New("order", number, OrderPlaced{number})); err != nil {
		return err
	}
	if err := s.reserve(ctx, tx, number, gift); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.store.Wake() // without it the dispatchers find the row by notification or at the next poll
	return nil
}

// reserve runs in a savepoint, of which sqlx knows as little as database/sql: where the
// gift is taken, its event is undone too, and the order goes on.
func (s *sqlxShop) reserve(ctx context.Context, tx *sqlx.Tx, number, gift string) error {
	if gift == "" {
		return nil
	}
	return unlessTaken(savepoint(ctx, tx.Tx, func() error {
		if err := s.outbox.Append(ctx, tx.Tx, eventing.New("order", number, GiftReserved{number, gift})); err != nil {
			return err
		}
		_, err := tx.NamedExecContext(ctx, `INSERT INTO gifts (name, number) VALUES (:name, :number)`, Gift{gift, number})
		return err
	}))
}
