package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"reflect"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testkit"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// uses are what a transaction can be begun with, and what comes of each.
var uses = map[string]func(ctx context.Context, tx pgx.Tx) (any, error){
	"nothing": func(context.Context, pgx.Tx) (any, error) { return nil, nil },
	"Exec":    insertNote("a"),
	"Exec of several statements": func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, `INSERT INTO notes VALUES ('a'); INSERT INTO notes VALUES ('b')`)
		return tag.RowsAffected(), err
	},
	"Exec that fails": insertNote("x"),
	"Exec after one that failed": func(ctx context.Context, tx pgx.Tx) (any, error) {
		_, _ = insertNote("x")(ctx, tx)
		return insertNote("a")(ctx, tx)
	},
	"Exec of what does not parse": func(ctx context.Context, tx pgx.Tx) (any, error) {
		return tx.Exec(ctx, `INSRT INTO notes VALUES ($1)`, "a")
	},
	"Exec with a wrong argument": func(ctx context.Context, tx pgx.Tx) (any, error) { return tx.Exec(ctx, `SELECT $1::int`, struct{}{}) },
	"Exec with a mode": func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, pgx.QueryExecModeSimpleProtocol, "a")
		return tag.RowsAffected(), err
	},
	"Exec with names that are missing": func(ctx context.Context, tx pgx.Tx) (any, error) {
		return tx.Exec(ctx, `SELECT @a::text, @b::text`, pgx.StrictNamedArgs{"a": "1"})
	},
	"Exec with names and a mode": func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, `INSERT INTO notes VALUES (@note)`, pgx.NamedArgs{"note": "a"}, pgx.QueryExecModeExec)
		return tag.RowsAffected(), err
	},
	"Exec of several statements with an argument": func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1); UPDATE notes SET note = note || $1 WHERE note = 'none'`, "a")
		return tag.RowsAffected(), err
	},
	"Exec when the time is up": func(ctx context.Context, tx pgx.Tx) (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, "a")
	},
	"Scan that fails": func(ctx context.Context, tx pgx.Tx) (any, error) {
		rows, err := tx.Query(ctx, `SELECT n::text || 'x' FROM generate_series(1, $1::int) n`, 3)
		if err != nil {
			return nil, err
		}
		var n int
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				break
			}
		}
		return insertNote("a")(ctx, tx)
	},
	"Conn after the end":     func(ctx context.Context, tx pgx.Tx) (any, error) { return tx.Conn() == nil, tx.Rollback(ctx) },
	"Query":                  numbers(`SELECT n FROM generate_series(1, $1::int) n`, 3),
	"Query without a row":    numbers(`SELECT n FROM generate_series(1, $1::int) n`, 0),
	"Query with a name":      numbers(`SELECT n FROM generate_series(1, @n::int) n`, pgx.NamedArgs{"n": 3}),
	"Query with formats":     numbers(`SELECT n FROM generate_series(1, $1::int) n`, pgx.QueryResultFormats{pgx.TextFormatCode}, 3),
	"Query that fails late":  numbers(`SELECT 12 / (3 - n) FROM generate_series(1, $1::int) n`, 3),
	"Query that is not done": numbers(`SELECT n FROM no_table WHERE n = $1`, 3),
	"Query that is given up": func(ctx context.Context, tx pgx.Tx) (any, error) {
		rows, err := tx.Query(ctx, `SELECT n FROM generate_series(1, $1::int) n`, 1000)
		if err != nil {
			return nil, err
		}
		rows.Next()
		rows.Close()
		return insertNote("a")(ctx, tx)
	},
	"QueryRow":               number(`SELECT $1::int`, 3),
	"QueryRow without a row": number(`SELECT n FROM generate_series(1, $1::int) n`, 0),
	"QueryRow that fails":    number(`SELECT 1 / $1::int`, 0),
	"QueryRow of a text":     number(`SELECT $1::text`, "a"),
	"QueryRow with a mode":   number(`SELECT $1::int`, pgx.QueryExecModeExec, 3),
	"SendBatch": func(ctx context.Context, tx pgx.Tx) (any, error) {
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO notes VALUES ($1)`, "a")
		b.Queue(`INSERT INTO notes VALUES ($1)`, "b")
		return nil, tx.SendBatch(ctx, b).Close()
	},
	"CopyFrom": func(ctx context.Context, tx pgx.Tx) (any, error) {
		return tx.CopyFrom(ctx, pgx.Identifier{"notes"}, []string{"note"}, pgx.CopyFromRows([][]any{{"a"}, {"b"}}))
	},
	"Prepare": func(ctx context.Context, tx pgx.Tx) (any, error) {
		if _, err := tx.Prepare(ctx, "put", `INSERT INTO notes VALUES ($1)`); err != nil {
			return nil, err
		}
		tag, err := tx.Exec(ctx, "put", "a")
		return tag.RowsAffected(), errors.Join(err, tx.Conn().Deallocate(ctx, "put"))
	},
	"Begin": func(ctx context.Context, tx pgx.Tx) (any, error) {
		failed := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := insertNote("x")(ctx, tx)
			return err
		})
		n, err := insertNote("a")(ctx, tx)
		return fmt.Sprint(sqlStateOf(failed), n), err
	},
	"LargeObjects": func(ctx context.Context, tx pgx.Tx) (any, error) {
		objects := tx.LargeObjects()
		id, err := objects.Create(ctx, 0)
		if err != nil {
			return nil, err
		}
		return nil, objects.Unlink(ctx, id)
	},
	"Conn":     func(_ context.Context, tx pgx.Tx) (any, error) { return tx.Conn().PgConn().TxStatus(), nil },
	"Commit":   func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, tx.Commit(ctx) },
	"Rollback": func(ctx context.Context, tx pgx.Tx) (any, error) { return nil, tx.Rollback(ctx) },
}

func insertNote(note string) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		tag, err := tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, note)
		return tag.RowsAffected(), err
	}
}

func numbers(query string, args ...any) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		rows, err := tx.Query(ctx, query, args...)
		if rows == nil {
			return nil, errors.New("the rows are nil")
		}
		n, collectErr := pgx.CollectRows(rows, pgx.RowTo[int])
		return n, errors.Join(err, collectErr)
	}
}

func number(query string, args ...any) func(context.Context, pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (n any, err error) {
		var i int
		err = tx.QueryRow(ctx, query, args...).Scan(&i)
		return i, err
	}
}

// outcome is what came of a use, and of the transaction.
type outcome struct {
	answer         any
	state, ended   string
	noRows, closed bool
	again          string // another statement, before the end
	notes, events  []string
}

// When an event is appended: before the transaction is used, or after that, or not.
var appends = []string{"", "before", "after"}

// A transaction of the store is what one of pgx is, whatever it begins with.
func TestTxIsAsThatOfPgx(t *testing.T) {
	t.Parallel()
	d := take(t)
	if _, err := d.pool.Exec(t.Context(), `CREATE TABLE IF NOT EXISTS notes (note text CHECK (note <> 'x'))`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.pool.Exec(context.WithoutCancel(t.Context()), `DROP TABLE notes`); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range modes {
		pool := otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		store := pgstore.New(pool)
		theirs := func(ctx context.Context, fn func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, fn) }
		for name, use := range uses {
			for _, when := range appends {
				t.Run(path.Join(mode.String(), name, when), func(t *testing.T) {
					want, got := outcomeOf(t, pool, theirs, use, when), outcomeOf(t, pool, store.InTx, use, when)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("\n got %+v\nwant %+v", got, want)
					}
				})
			}
		}
	}
}

func outcomeOf(t *testing.T, pool *pgxpool.Pool, inTx func(context.Context, func(pgx.Tx) error) error, use func(context.Context, pgx.Tx) (any, error), when string) (o outcome) {
	t.Helper()
	ctx, outbox, event := t.Context(), eventing.NewOutbox(pgstore.New(pool), eventing.OutboxConfig{}), eventing.New("", "", notice{})
	event.ID = "e1"
	if _, err := pool.Exec(ctx, `DELETE FROM notes; DELETE FROM event_outbox`); err != nil {
		t.Fatal(err)
	}
	err := inTx(ctx, func(tx pgx.Tx) error {
		if when == "before" {
			if err := outbox.Append(ctx, tx, event); err != nil {
				return err
			}
		}
		answer, err := use(ctx, tx)
		o.answer, o.state, o.noRows, o.closed = answer, sqlStateOf(err), errors.Is(err, pgx.ErrNoRows), errors.Is(err, pgx.ErrTxClosed)
		if when == "after" {
			_ = outbox.Append(ctx, tx, event) // what is wrong may be told later
		}
		_, err = tx.Exec(ctx, `INSERT INTO notes VALUES ($1)`, "last")
		o.again = sqlStateOf(err)
		return nil
	})
	if o.ended = sqlStateOf(err); err != nil && when != "" {
		o.ended = "an error" // that of the append, or of the end
	}
	o.notes, o.events = textsOf(t, pool, `SELECT note FROM notes ORDER BY note`), textsOf(t, pool, `SELECT event_id FROM event_outbox`)
	testkit.Eventually(t, 10*time.Second, func() error { // one that is broken is closed behind our back
		if n := pool.Stat().AcquiredConns(); n != 0 {
			return fmt.Errorf("%d connections are not given back", n)
		}
		return nil
	})
	return o
}

func textsOf(t *testing.T, pool *pgxpool.Pool, query string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// sqlStateOf is of an error of the server; of another it says that there is one.
func sqlStateOf(err error) string {
	var state interface{ SQLState() string }
	switch {
	case err == nil:
		return ""
	case errors.As(err, &state):
		return state.SQLState()
	}
	return "an error"
}

// What is wrong with a handler's first statement is the handler's failure; that the transaction could not begin is the
// store's, and no attempt.
func TestWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	errOwn := errors.New("the handler's own")
	const statement, gone = `SELECT $1::int`, "the server is gone"
	for name, test := range map[string]struct {
		first func(ctx context.Context, d database, tx pgx.Tx) error
		want  error
	}{
		"its time is up": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.Exec(ctx, `SELECT $1::int`, 1)
			return err
		}, errOwn},
		"its time is up before a statement that goes alone": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.Exec(ctx, `SELECT 1`)
			return err
		}, errOwn},
		"its time runs out": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 10)
			return err
		}, errOwn},
		"the statement does not parse": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELCT $1`, 1)
			return err
		}, errOwn},
		"an argument does not fit": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT $1::int`, struct{}{})
			return err
		}, errOwn},
		"the statement fails": {func(ctx context.Context, _ database, tx pgx.Tx) error {
			return tx.QueryRow(ctx, `SELECT 1 / $1::int`, 0).Scan(new(int))
		}, errOwn},
		gone: {func(ctx context.Context, d database, tx pgx.Tx) error {
			if tag, err := d.pool.Exec(ctx, `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1`, gone); err != nil || tag.RowsAffected() != 1 {
				t.Errorf("%d connections were ended, %v", tag.RowsAffected(), err)
			}
			_, err := tx.Exec(ctx, statement, 1)
			return err
		}, eventing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := take(t)
			var down atomic.Bool
			pool := otherPool(t, d, func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams = map[string]string{"application_name": name}
				c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
					if down.Load() {
						return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
					}
					return nil
				}
			})
			store := pgstore.New(pool)
			if err := store.InTx(t.Context(), func(tx pgx.Tx) error { // so that it is prepared
				_, err := tx.Exec(t.Context(), statement, 1)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			down.Store(name == gone)
			called := false
			err := store.Succeed(t.Context(), eventing.Success{
				Run: eventing.Run{Delivery: delivery("billing", "e1", "")}, Now: noon, InboxUntil: later,
				Effect: func(ctx context.Context, tx any) error {
					called = true
					if err := test.first(ctx, d, tx.(pgx.Tx)); err == nil {
						t.Error("the first statement has not failed")
					}
					return errOwn
				},
			})
			if !called || !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
