package transactions

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type gormShop struct {
	db     *gorm.DB
	store  *pgstore.SQLStore
	outbox *eventing.Outbox[*sql.Tx]
}

func newGORMShop(db *gorm.DB) (*gormShop, error) {
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	store := pgstore.NewSQL(pool)
	return &gormShop{db, store, eventing.NewOutbox(store, eventing.OutboxConfig{})}, nil
}

// place places an order, with a gift if one is named and still to be had.
func (s *gormShop) place(ctx context.Context, number, gift string) error {
	err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Order{number}).Error; err != nil {
			return err
		}
		sqlTx, err := gormTx(tx)
		if err != nil {
			return err
		}
		if err := s.outbox.Append(ctx, sqlTx, eventing.New("order", number, OrderPlaced{number})); err != nil {
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
func (s *gormShop) reserve(ctx context.Context, tx *gorm.DB, number, gift string) error {
	if gift == "" {
		return nil
	}
	return unlessTaken(tx.Transaction(func(tx *gorm.DB) error {
		sqlTx, err := gormTx(tx)
		if err != nil {
			return err
		}
		if err := s.outbox.Append(ctx, sqlTx, eventing.New("order", number, GiftReserved{number, gift})); err != nil {
			return err
		}
		return tx.Create(&Gift{gift, number}).Error
	}))
}

// gormTx returns the transaction that db is in: in Transaction, after Begin, or in a
// hook. In none it returns an error, since an event would be appended by itself.
func gormTx(db *gorm.DB) (*sql.Tx, error) {
	if db.Error != nil { // Begin failed, for example
		return nil, db.Error
	}
	pool := db.Statement.ConnPool
	for { // PrepareStmt wraps the transaction, and once more for each Session that asks for it
		prepared, ok := pool.(*gorm.PreparedStmtTX)
		if !ok {
			break
		}
		pool = prepared.Tx
	}
	tx, ok := pool.(*sql.Tx)
	if !ok {
		return nil, fmt.Errorf("%T is no transaction: append with the *gorm.DB that Transaction, Begin or a hook hands out", pool)
	}
	return tx, nil
}
