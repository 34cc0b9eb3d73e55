package pgstore_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// appender appends in transactions of one connection.
type appender struct {
	*testing.T
	d      database
	pool   *pgxpool.Pool
	outbox *eventing.Outbox[pgx.Tx]
	trips  trips
}

func newAppender(t *testing.T) *appender {
	a := &appender{T: t, d: take(t)}
	a.pool = otherPool(t, a.d, func(c *pgxpool.Config) { c.MaxConns, c.ConnConfig.Tracer = 1, &a.trips })
	a.outbox = eventing.NewOutbox(pgstore.New(a.pool), eventing.OutboxConfig{})
	return a
}

func (a *appender) append(tx pgx.Tx, ids ...string) error {
	for _, id := range ids {
		e := eventing.New("", "", notice{})
		e.ID = id
		if err := a.outbox.Append(a.Context(), tx, e); err != nil {
			return err
		}
	}
	return nil
}

func (a *appender) stored() []string {
	return textsOf(a.T, a.d.pool, `SELECT event_id FROM event_outbox ORDER BY seq`)
}

// What is appended takes a round trip of its own only where a statement follows.
func TestRoundTripsOfAppend(t *testing.T) {
	t.Parallel()
	a := newAppender(t)
	statement := func(tx pgx.Tx) error {
		_, err := tx.Exec(a.Context(), `SELECT $1::int`, 1)
		return err
	}
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprint(i))
	}
	for name, test := range map[string]struct {
		fn   func(tx pgx.Tx) error
		want int32
	}{
		"one":                      {func(tx pgx.Tx) error { return a.append(tx, "e1") }, 1},
		"two":                      {func(tx pgx.Tx) error { return a.append(tx, "e1", "e2") }, 1},
		"after a statement":        {func(tx pgx.Tx) error { return errors.Join(statement(tx), a.append(tx, "e1")) }, 2},
		"before a statement":       {func(tx pgx.Tx) error { return errors.Join(a.append(tx, "e1"), statement(tx)) }, 3},
		"a hundred, one by one":    {func(tx pgx.Tx) error { return a.append(tx, ids...) }, 7},
		"nothing that is appended": {statement, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := int32(math.MaxInt32)
			for range 5 { // the first time, statements are prepared; and a pause of the machine makes one more
				if _, err := a.d.pool.Exec(t.Context(), `DELETE FROM event_outbox`); err != nil {
					t.Fatal(err)
				}
				a.trips.n.Store(0)
				if err := a.outbox.InTx(t.Context(), test.fn); err != nil {
					t.Fatal(err)
				}
				got = min(got, a.trips.n.Load())
			}
			if got != test.want {
				t.Errorf("%d round trips, want %d", got, test.want)
			}
		})
	}
}

// An event that cannot be written fails the transaction, whenever that is known, and leaves the connection as it was.
func TestAppendThatFails(t *testing.T) {
	t.Parallel()
	a := newAppender(t)
	if err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error { return a.append(tx, "known") }); err != nil {
		t.Fatal(err)
	}
	var pid uint32
	for name, fn := range map[string]func(tx pgx.Tx) error{
		"at the commit": func(tx pgx.Tx) error { return a.append(tx, "new", "known") },
		"after a statement": func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT $1::int`, 1)
			return errors.Join(err, a.append(tx, "new", "known"))
		},
		"at the next statement": func(tx pgx.Tx) error {
			if err := a.append(tx, "new", "known"); err != nil {
				t.Error(err)
			}
			_, err := tx.Exec(t.Context(), `SELECT $1::int`, 1)
			if sqlStateOf(err) != "23505" {
				t.Errorf("the statement: %v", err)
			}
			return nil // InTx fails all the same
		},
		"in a savepoint that is rolled back": func(tx pgx.Tx) error {
			return errors.Join(a.append(tx, "new"), pgx.BeginFunc(t.Context(), tx, func(sp pgx.Tx) error { return a.append(sp, "known") }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := a.outbox.InTx(t.Context(), fn); sqlStateOf(err) != "23505" {
				t.Errorf("got %v", err)
			}
			if got := a.stored(); !slices.Equal(got, []string{"known"}) {
				t.Errorf("stored: %v", got)
			}
			was := pid
			if err := a.pool.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil || was != 0 && was != pid {
				t.Errorf("the connection is another: %d, %d, %v", was, pid, err)
			}
		})
	}
}

// Statements that fail, and whose errors are ignored, take no event with them: either all is stored, or InTx fails.
func TestAppendBeforeWhatFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails  func(ctx context.Context, tx pgx.Tx) error
		stored bool
	}{
		"its time was up": {func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := tx.Exec(ctx, `SELECT $1::int`, 1)
			return err
		}, true},
		"its time runs out": {func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(ctx, `SELECT pg_sleep($1)`, 10)
			return err
		}, false},
		"rows are open": {func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT generate_series(1, $1::int)`, 1000)
			if err != nil {
				return nil
			}
			defer rows.Close()
			_, err = tx.Exec(ctx, `SELECT $1::int`, 1)
			return err
		}, true},
		"it fails": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1 / $1::int`, 0)
			return err
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAppender(t)
			err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error {
				if err := a.append(tx, "before"); err != nil {
					t.Error(err)
				}
				if err := test.fails(t.Context(), tx); err == nil {
					t.Error("the statement has not failed")
				}
				return a.append(tx, "after")
			})
			want := []string{"before", "after"}
			if !test.stored {
				want = nil
			}
			if got := a.stored(); (err == nil) != test.stored || !slices.Equal(got, want) {
				t.Errorf("%v, and stored is %v", err, got)
			}
		})
	}
}

// What the database has against an event only when it commits fails the transaction, too.
func TestAppendThatFailsAtTheCommit(t *testing.T) {
	t.Parallel()
	d := take(t)
	if _, err := d.pool.Exec(t.Context(), `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'P0042'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON event_outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.pool.Exec(context.WithoutCancel(t.Context()), `DROP FUNCTION refuse CASCADE`); err != nil {
			t.Error(err)
		}
	})
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			pool := otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			outbox := eventing.NewOutbox(pgstore.New(pool), eventing.OutboxConfig{})
			for _, statements := range []int{0, 1} {
				err := outbox.InTx(t.Context(), func(tx pgx.Tx) error {
					for range statements {
						if _, err := tx.Exec(t.Context(), `SELECT $1::int`, 1); err != nil {
							return err
						}
					}
					return outbox.Append(t.Context(), tx, eventing.New("", "", notice{}))
				})
				if got := textsOf(t, pool, `SELECT event_id FROM event_outbox`); sqlStateOf(err) != "P0042" || len(got) > 0 {
					t.Errorf("after %d statements: %v, and stored is %v", statements, err, got)
				}
			}
		})
	}
}

// What the caller does with his rows once they are appended changes nothing.
func TestAppendRowsOfTheCaller(t *testing.T) {
	t.Parallel()
	a := newAppender(t)
	store := pgstore.New(a.pool)
	if err := store.InTx(t.Context(), func(tx pgx.Tx) error {
		rows := []eventing.OutboxRow{{}, {}}
		for i := range 3 {
			for j := range rows {
				rows[j] = row(fmt.Sprint(i, j), fmt.Sprint("key ", i, j))
				rows[j].DueAt = noon.Add(time.Duration(10*i+j) * time.Hour)
			}
			if err := store.AppendRows(t.Context(), tx, rows); err != nil {
				return err
			}
		}
		clear(rows)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := textsOf(t, a.d.pool, `SELECT event_id || ', ' || ordering_key || ', ' || (extract(epoch FROM due_at - '`+noon.Format(time.RFC3339)+`') / 3600)::int FROM event_outbox ORDER BY seq`)
	want := []string{"0 0, key 0 0, 0", "0 1, key 0 1, 1", "1 0, key 1 0, 10", "1 1, key 1 1, 11", "2 0, key 2 0, 20", "2 1, key 2 1, 21"}
	if !slices.Equal(got, want) {
		t.Errorf("stored: %q", got)
	}
}

// Whether rows are open makes no difference, however many are appended.
func TestAppendWhileRowsAreOpen(t *testing.T) {
	t.Parallel()
	a := newAppender(t)
	const n = 3 * 16
	if err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error {
		rows, err := tx.Query(t.Context(), `SELECT n::text FROM generate_series(1, $1::int) n`, n)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := errors.Join(rows.Scan(&id), a.append(tx, id)); err != nil {
				return err
			}
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
	if got := a.stored(); len(got) != n {
		t.Errorf("stored: %v", got)
	}
}

// unencodable is an argument whose encoding panics, as that of an application may: it calls a function that is nil.
type unencodable struct{ encode func() (driver.Value, error) }

// Value implements [driver.Valuer].
func (u unencodable) Value() (driver.Value, error) { return u.encode() }

// A transaction of which something could not be sent does not commit without it, even if the caller recovers.
func TestAppendBesideAPanic(t *testing.T) {
	t.Parallel()
	a := newAppender(t)
	store := pgstore.New(a.pool)
	err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error {
		if err := errors.Join(a.append(tx, "e1"), store.ExecLater(t.Context(), tx, `SELECT $1::text`, unencodable{})); err != nil {
			return err
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = tx.Exec(t.Context(), `SELECT $1::int`, 1)
			t.Error("it has not panicked")
		}()
		_, _ = tx.Exec(t.Context(), `SELECT $1::int`, 1)
		return nil
	})
	if got := a.stored(); err == nil || len(got) > 0 {
		t.Errorf("%v, and stored is %v", err, got)
	}
	if err := a.outbox.InTx(t.Context(), func(tx pgx.Tx) error { return a.append(tx, "e2") }); err != nil {
		t.Error(err)
	}
}
