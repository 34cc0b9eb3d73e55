package pgstore_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing/pgstore"
)

// orderer is an appender with a table of its own.
type orderer struct {
	*appender
	store *pgstore.Store
}

func newOrderer(t *testing.T) orderer {
	a := newAppender(t)
	if _, err := a.d.pool.Exec(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := a.d.pool.Exec(context.WithoutCancel(t.Context()), `DROP TABLE orders`); err != nil {
			t.Error(err)
		}
	})
	return orderer{a, pgstore.New(a.pool)}
}

func (l orderer) insert(tx pgx.Tx, ids ...string) error {
	for _, id := range ids {
		if err := l.store.ExecLater(l.Context(), tx, `INSERT INTO orders VALUES ($1)`, id); err != nil {
			return err
		}
	}
	return nil
}

func (l orderer) orders(in interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}) []string {
	rows, _ := in.Query(l.Context(), `SELECT id FROM orders WHERE id <> $1 ORDER BY id`, "") // CollectRows has the error
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		l.Error(err)
	}
	return ids
}

// What is changed, and the event that tells of it, are one round trip; what follows sees both.
func TestExecLater(t *testing.T) {
	t.Parallel()
	l := newOrderer(t)
	trips := int32(math.MaxInt32)
	for _, id := range []string{"o1", "o2", "o3", "o4", "o5"} { // the first time, statements are prepared; and a pause of the machine makes one more
		l.trips.n.Store(0)
		if err := l.outbox.InTx(t.Context(), func(tx pgx.Tx) error { return errors.Join(l.insert(tx, id), l.append(tx, id)) }); err != nil {
			t.Fatal(err)
		}
		trips = min(trips, l.trips.n.Load())
	}
	if want := []string{"o1", "o2", "o3", "o4", "o5"}; trips != 1 || !slices.Equal(l.orders(l.d.pool), want) || !slices.Equal(l.stored(), want) {
		t.Errorf("%d round trips; orders %v, events %v", trips, l.orders(l.d.pool), l.stored())
	}
	err := l.outbox.InTx(t.Context(), func(tx pgx.Tx) error {
		err := errors.Join(l.insert(tx, "o6"), l.append(tx, "o6"), l.insert(tx, "o7"))
		if got := l.orders(tx); !slices.Equal(got, []string{"o1", "o2", "o3", "o4", "o5", "o6", "o7"}) {
			t.Errorf("within: %v", got)
		}
		return errors.Join(err, errors.New("on second thoughts"))
	})
	if got := l.orders(l.d.pool); err == nil || len(got) != 5 || len(l.stored()) != 5 {
		t.Errorf("rolled back: %v, orders %v, events %v", err, got, l.stored())
	}
}

// A statement that fails later takes all of its transaction with it.
func TestExecLaterThatFails(t *testing.T) {
	t.Parallel()
	l := newOrderer(t)
	if err := l.store.InTx(t.Context(), func(tx pgx.Tx) error { return l.insert(tx, "known") }); err != nil {
		t.Fatal(err)
	}
	for name, fn := range map[string]func(tx pgx.Tx) error{
		"at the commit":  func(tx pgx.Tx) error { return errors.Join(l.insert(tx, "new", "known"), l.append(tx, "e")) },
		"after an event": func(tx pgx.Tx) error { return errors.Join(l.append(tx, "e"), l.insert(tx, "known")) },
		"at the next statement": func(tx pgx.Tx) error {
			if err := errors.Join(l.append(tx, "e"), l.insert(tx, "known")); err != nil {
				t.Error(err)
			}
			if _, err := tx.Exec(t.Context(), `SELECT $1::int`, 1); sqlStateOf(err) != "23505" {
				t.Errorf("the statement: %v", err)
			}
			return nil // InTx fails all the same
		},
	} {
		if err := l.outbox.InTx(t.Context(), fn); sqlStateOf(err) != "23505" {
			t.Errorf("%s: %v", name, err)
		}
		if got := l.orders(l.d.pool); !slices.Equal(got, []string{"known"}) || len(l.stored()) > 0 {
			t.Errorf("%s: orders %v, events %v", name, got, l.stored())
		}
	}
}

// Where nothing can wait, it runs at once.
func TestExecLaterAtOnce(t *testing.T) {
	t.Parallel()
	l := newOrderer(t)
	if err := pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
		err := l.insert(tx, "o1")
		if sqlStateOf(l.insert(tx, "o1")) != "23505" {
			t.Error("in another's transaction it has waited")
		}
		return err
	}); err == nil {
		t.Error("another's transaction has committed")
	}
	if err := l.store.InTx(t.Context(), func(tx pgx.Tx) error {
		return l.store.ExecLater(t.Context(), tx, `INSERT INTO orders VALUES ('o2'); INSERT INTO orders VALUES ('o3')`)
	}); err != nil {
		t.Error(err)
	}
	if got := l.orders(l.d.pool); !slices.Equal(got, []string{"o2", "o3"}) {
		t.Errorf("stored: %v", got)
	}
}

// The caller may use the list of arguments again.
func TestExecLaterKeepsArguments(t *testing.T) {
	t.Parallel()
	l := newOrderer(t)
	if err := l.store.InTx(t.Context(), func(tx pgx.Tx) error {
		args := make([]any, 1)
		for _, id := range []string{"o1", "o2", "o3"} {
			args[0] = id
			if err := l.store.ExecLater(t.Context(), tx, `INSERT INTO orders VALUES ($1)`, args...); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := l.orders(l.d.pool); !slices.Equal(got, []string{"o1", "o2", "o3"}) {
		t.Errorf("stored: %v", got)
	}
}

// panicking is an argument whose encoding fails as that of a nil pointer does.
type panicking struct{}

func (panicking) Value() (driver.Value, error) {
	var none *time.Time
	return *none, nil
}

// An argument that panics when it is encoded costs no connection.
func TestExecLaterThatPanics(t *testing.T) {
	t.Parallel()
	l := newOrderer(t)
	for _, begun := range []bool{false, true} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("nothing has panicked")
				}
			}()
			_ = l.store.InTx(t.Context(), func(tx pgx.Tx) error {
				if begun {
					l.orders(tx)
				}
				return l.store.ExecLater(t.Context(), tx, `INSERT INTO orders VALUES ($1)`, panicking{})
			})
		}()
	}
	if err := l.outbox.InTx(t.Context(), func(tx pgx.Tx) error { return errors.Join(l.insert(tx, "o1"), l.append(tx, "o1")) }); err != nil {
		t.Error(err)
	}
	if got := l.orders(l.d.pool); !slices.Equal(got, []string{"o1"}) {
		t.Errorf("stored: %v", got)
	}
}
