package transactions

import (
	"context"
	"errors"
	"testing"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/waybill-go/waybill/eventing"
)

func openGORM(t *testing.T, url string, prepare bool) *gormShop {
	t.Helper()
	db, err := gorm.Open(postgres.Open(url), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	s, err := newGORMShop(db)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := db.DB()
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, pool)
	return s
}

// The compiler cannot tell a *gorm.DB in a transaction from one in none.
func TestGORMWithoutTransaction(t *testing.T) {
	t.Parallel()
	_, url := database(t)
	ended, end := context.WithCancel(t.Context())
	end()
	for _, prepare := range []bool{false, true} {
		db := openGORM(t, url, prepare).db
		if tx, err := gormTx(db.WithContext(t.Context())); err == nil {
			t.Errorf("PrepareStmt %t: got %v", prepare, tx)
		}
		if _, err := gormTx(db.WithContext(ended).Begin()); !errors.Is(err, context.Canceled) {
			t.Errorf("PrepareStmt %t, Begin failed: got %v", prepare, err)
		}
	}
}

// A Session in a transaction may ask for prepared statements once more.
func TestGORMSessions(t *testing.T) {
	t.Parallel()
	pool, url := database(t)
	for _, prepare := range []bool{false, true} {
		s := openGORM(t, url, prepare)
		again := gorm.Session{PrepareStmt: true}
		if err := s.db.Transaction(func(tx *gorm.DB) error {
			sqlTx, err := gormTx(tx.Session(&again).Session(&again))
			if err != nil {
				return err
			}
			return s.outbox.Append(t.Context(), sqlTx, eventing.New("order", "1", OrderPlaced{"1"}))
		}); err != nil {
			t.Errorf("PrepareStmt %t: %v", prepare, err)
		}
	}
	contents{events: []string{"OrderPlaced 1", "OrderPlaced 1"}}.check(t, pool)
}

// hooked appends its event itself.
type hooked struct {
	Number string
	shop   *gormShop
}

func (hooked) TableName() string { return "orders" }

func (h *hooked) AfterCreate(tx *gorm.DB) error {
	sqlTx, err := gormTx(tx)
	if err != nil {
		return err
	}
	return h.shop.outbox.Append(tx.Statement.Context, sqlTx, eventing.New("order", h.Number, OrderPlaced{h.Number}))
}

// GORM puts each write into a transaction of its own, unless it is told not to.
func TestGORMHook(t *testing.T) {
	t.Parallel()
	pool, url := database(t)
	s := openGORM(t, url, false)
	if err := s.db.WithContext(t.Context()).Create(&hooked{"1", s}).Error; err != nil {
		t.Error(err)
	}
	if err := s.db.WithContext(t.Context()).Create(&hooked{"1", s}).Error; sqlState(err) != "23505" {
		t.Errorf("got %v, want a number that is taken", err)
	}
	contents{orders: []string{"1"}, events: []string{"OrderPlaced 1"}}.check(t, pool)
	without := s.db.WithContext(t.Context()).Session(&gorm.Session{SkipDefaultTransaction: true})
	if err := without.Create(&hooked{"2", s}).Error; err == nil {
		t.Error("a hook without a transaction appended")
	}
	contents{orders: []string{"1", "2"}, events: []string{"OrderPlaced 1"}}.check(t, pool)
}

// Without savepoints, an inner transaction that fails takes nothing back.
func TestGORMWithoutNestedTransactions(t *testing.T) {
	t.Parallel()
	pool, url := database(t)
	s := openGORM(t, url, false)
	db := s.db.WithContext(t.Context()).Session(&gorm.Session{DisableNestedTransaction: true})
	failed := errors.New("the inner transaction failed")
	if err := db.Transaction(func(tx *gorm.DB) error {
		err := tx.Transaction(func(tx *gorm.DB) error {
			sqlTx, err := gormTx(tx)
			if err != nil {
				return err
			}
			return errors.Join(s.outbox.Append(t.Context(), sqlTx, eventing.New("order", "1", OrderPlaced{"1"})), failed)
		})
		if !errors.Is(err, failed) {
			return err
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	contents{events: []string{"OrderPlaced 1"}}.check(t, pool)
}
