package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store"
)

// A ledger that is in use keeps its rows through each migration, there and back, and takes new ones.
func TestMigrationsKeepTheLedger(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "waybill.db"), "postgres": testserver.PostgresURL(t)} {
		t.Run(name, func(t *testing.T) {
			db, p := store.GatewaySteps(t, address)
			var want []string
			check := func(version int64) {
				t.Helper()
				key := fmt.Sprintf("key %02d", len(want))
				if _, err := db.ExecContext(t.Context(), `INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at,
					trace_id, body_hash, status, first_seen_at, updated_at) VALUES ($1, $2, 'event', 'type', 'source', 'shipment', $3, $3, 'trace', 'hash', 'failed', $3, $3)`,
					key, "envelope of "+key, "2026-02-26T12:00:00Z"); err != nil {
					t.Fatalf("version %d: %v", version, err)
				}
				want = append(want, key+", envelope of "+key+", event, type, source, shipment, trace, hash, failed, , 0")
				if got := texts(t, db, `SELECT idempotency_key || ', ' || envelope_id || ', ' || event_id || ', ' || event_type || ', ' || source || ', ' || shipment_id || ', ' ||
					trace_id || ', ' || body_hash || ', ' || status || ', ' || outcome || ', ' || attempt_count FROM courier_ledger ORDER BY idempotency_key`); !slices.Equal(got, want) {
					t.Errorf("version %d:\ngot  %q\nwant %q", version, got, want)
				}
				if _, err := db.ExecContext(t.Context(), `INSERT INTO courier_ledger SELECT * FROM courier_ledger`); err == nil {
					t.Errorf("version %d: a key is taken twice", version)
				}
			}
			for range p.ListSources() {
				r, err := p.UpByOne(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				check(r.Source.Version)
			}
			for range p.ListSources()[1:] { // the first makes the table
				r, err := p.Down(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				check(r.Source.Version - 1)
			}
		})
	}
}

// A migration and those who have read the ledger, and now write it, do not wait for each other for ever.
func TestMigrationsBesideWriters(t *testing.T) {
	t.Parallel()
	db, p := store.GatewaySteps(t, testserver.PostgresURL(t))
	if _, err := p.UpByOne(t.Context()); err != nil { // it makes the table
		t.Fatal(err)
	}
	check := func(what string, step func(context.Context) (*goose.MigrationResult, error)) {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		var count int
		if err := tx.QueryRowContext(t.Context(), `SELECT count(*) FROM courier_ledger`).Scan(&count); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := step(t.Context())
			done <- err
		}()
		testkit.Eventually(t, 20*time.Second, func() error {
			if len(done) == 1 {
				return nil
			}
			if waiting := texts(t, db, `SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`); len(waiting) == 0 {
				return errors.New("the step neither waits nor ends")
			}
			return nil
		})
		if _, err := tx.ExecContext(t.Context(), `UPDATE courier_ledger SET outcome = 'late'`); err != nil {
			t.Errorf("%s: the writer: %v", what, err)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("%s: the writer: %v", what, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	steps := p.ListSources()[1:]
	for _, s := range steps {
		check("up to "+s.Path, p.UpByOne)
	}
	for _, s := range slices.Backward(steps) {
		check("down from "+s.Path, p.Down)
	}
}

// Processes that start together on a file apply each step once, and none fails.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	address := "sqlite:" + filepath.Join(t.TempDir(), "waybill.db")
	db, p := store.GatewaySteps(t, address)
	if _, err := p.UpTo(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20000)
		INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at)
		SELECT 'k' || n, 'e' || n, 'event', 'type', 'source', 'shipment', '', '', 'trace', 'hash', 'received', '', '' FROM number`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, err := store.OpenSchema(t.Context(), address, true)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Up(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := texts(t, db, `SELECT version_id || ' ' || count(*) FROM gateway_schema_version GROUP BY version_id HAVING count(*) <> 1 OR version_id = 5`); !slices.Equal(got, []string{"5 1"}) {
		t.Errorf("applied: %q", got)
	}
}

func texts(t *testing.T, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
