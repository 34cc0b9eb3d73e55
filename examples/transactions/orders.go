// Package transactions shows how to append events in the transactions of pgx,
// database/sql, sqlx, GORM and bun, on PostgreSQL. Each file is one library, to be
// copied from: place is what an application has, and reserve is called by it in a
// transaction within the transaction.
package transactions

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// OrderPlaced is an event.
type OrderPlaced struct{ Number string }

// GiftReserved is an event of the same order.
type GiftReserved struct{ Number, Gift string }

// Order is a row of orders: sqlx, GORM and bun find table and column by their
// conventions.
type Order struct{ Number string }

// Gift is a row of gifts: there is one of each, for the order of this number.
type Gift struct{ Name, Number string }

// A number that is taken shows at the commit only, when the event has long been
// appended.
const schema = `
CREATE TABLE orders (number text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE gifts (name varchar(10) PRIMARY KEY, number text NOT NULL)`

// unlessTaken lets an order go on without its gift if another one has it.
func unlessTaken(err error) error {
	const uniqueViolation = "23505"
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == uniqueViolation {
		return nil
	}
	return err
}
