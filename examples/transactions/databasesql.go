package transactions

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type sqlShop struct {
	db     *sql.DB
	store  *pgstore.SQLStore
	outbox *eventing.Outbox[*sql.Tx]
}

func newSQLShop(db *sql.DB) *sqlShop {
	store := pgstore.NewSQL(db)
	return &sqlShop{db, store, eventing.NewOutbox(store, eventing.OutboxConfig{})}
}

// place places an order, with a gift if one is named and still to be had.
func (s *sqlShop) place(ctx context.Context, number, gift string) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing is left to it after the commit
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (number) VALUES ($1)`, number); err != nil {
		return err
	}
	if err := s.outbox.Append(ctx, tx, eventing.New("order", number, OrderPlaced{number})); err != nil {
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

// reserve runs in a savepoint: where the gift is taken, its event is undone too, and
// the order goes on.
func (s *sqlShop) reserve(ctx context.Context, tx *sql.Tx, number, gift string) error {
	if gift == "" {
		return nil
	}
	return unlessTaken(savepoint(ctx, tx, func() error {
		if err := s.outbox.Append(ctx, tx, eventing.New("order", number, GiftReserved{number, gift})); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO gifts (name, number) VALUES ($1, $2)`, gift, number)
		return err
	}))
}

// savepoint is what database/sql lacks: it runs fn and, if that fails, undoes what fn
// did in tx. If the undoing fails too, tx cannot commit any more.
func savepoint(ctx context.Context, tx *sql.Tx, fn func() error) error {
	if _, err := tx.ExecContext(ctx, `SAVEPOINT nested`); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undone := tx.ExecContext(ctx, `ROLLBACK TO SAVEPOINT nested`)
		return errors.Join(err, undone)
	}
	_, err := tx.ExecContext(ctx, `RELEASE SAVEPOINT nested`)
	return err
}
