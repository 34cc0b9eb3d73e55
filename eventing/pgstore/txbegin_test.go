package pgstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testkit"
)

// Until its first statement, a handler has no transaction open at the server.
func TestTxBeginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	d := take(t)
	state := func() []string {
		return textsOf(t, d.pool, `SELECT DISTINCT state FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lazy'`)
	}
	pool := otherPool(t, d, nil)
	store := pgstore.New(pool)
	if err := store.InTx(t.Context(), func(tx pgx.Tx) error {
		if _, err := pool.Exec(t.Context(), `SELECT 1`); err != nil { // another connection
			return err
		}
		if got := state(); slices.Contains(got, "idle in transaction") {
			t.Errorf("before the first statement: %v", got)
		}
		if _, err := tx.Exec(t.Context(), `SELECT set_config('application_name', $1, false)`, "lazy"); err != nil {
			return err
		}
		if got := state(); !slices.Equal(got, []string{"idle in transaction"}) {
			t.Errorf("after it: %v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A connection that was closed while the handler asked others is no loss: nothing has begun on it.
func TestTxBeginsOnAnotherConnection(t *testing.T) {
	t.Parallel()
	d := take(t)
	pool := otherPool(t, d, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["idle_session_timeout"], c.ConnConfig.RuntimeParams["application_name"] = "200ms", "idle"
	})
	closed := func() {
		testkit.Eventually(t, 20*time.Second, func() error {
			var n int
			err := d.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'idle'`).Scan(&n)
			if err == nil && n > 0 {
				err = fmt.Errorf("%d connections are open", n)
			}
			return err
		})
	}
	store := pgstore.New(pool)
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})
	exec := func(query string, args ...any) func(wait func()) error {
		return func(wait func()) error {
			return store.InTx(t.Context(), func(tx pgx.Tx) error {
				wait()
				_, err := tx.Exec(t.Context(), query, args...)
				return err
			})
		}
	}
	n := 0
	for name, begin := range map[string]func(wait func()) error{
		"a statement":         exec(`SELECT $1::int`, 1),
		"one that goes alone": exec(`SELECT 1`),
		"what is appended": func(wait func()) error {
			return store.InTx(t.Context(), func(tx pgx.Tx) error {
				wait()
				return outbox.Append(t.Context(), tx, eventing.New("", "", notice{}))
			})
		},
		"the conclusion of a handler that writes nothing": func(wait func()) error {
			n++
			return store.Succeed(t.Context(), eventing.Success{
				Run: eventing.Run{Delivery: delivery("billing", fmt.Sprint("e", n), "")}, Now: noon, InboxUntil: later,
				Effect: func(context.Context, any) error {
					wait()
					return nil
				},
			})
		},
	} {
		for _, wait := range []func(){func() {}, closed} {
			if err := begin(wait); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
