package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

var groupBacklog = group{name: "backlog", what: "Dispatch from large tables, Postgres to Redis"}

// backlog is how large the tables are, and how they are measured.
type backlog struct {
	*servers
	rows   int // of the large tables
	drain  int // rows of each measurement
	rounds int
	rates  rates

	progress *log.Logger
}

func (b *backlog) smallTable() string {
	return fmt.Sprintf("%s pending, nothing else", thousands(b.drain))
}

func runBacklog(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	flags, jsonFile := newFlags("backlog", progress)
	b := &backlog{progress: progress}
	flags.IntVar(&b.rounds, "rounds", 5, "how often each case is measured")
	flags.IntVar(&b.rows, "rows", 10_000_000, "rows of the large tables")
	flags.IntVar(&b.drain, "drain", 100_000, "rows that each measurement dispatches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := positive(flags, "rounds", "rows", "drain"); err != nil {
		return err
	}
	if need := 2 * b.rounds * b.drain; b.rows < need {
		return fmt.Errorf("-rows is %d; two cases of %d rounds dispatch up to %d rows", b.rows, b.rounds, need)
	}
	if err := checkDisk(b.rows); err != nil {
		return err
	}
	results, err := b.run(ctx)
	if err != nil {
		return err
	}
	return writeReport(out, *jsonFile, results, func(w io.Writer) error {
		return writeTable(w, []group{groupBacklog}, results)
	})
}

func (b *backlog) run(ctx context.Context) (results []result, err error) {
	if b.servers, err = startServers(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	// Filling writes some 15 GB of log; with the default of 1 GB it mostly waits for checkpoints.
	if err := b.exec(ctx, `ALTER SYSTEM SET max_wal_size = '4GB'`, `SELECT pg_reload_conf()`); err != nil {
		return nil, err
	}
	b.rates.declare(groupBacklog.name, b.smallTable())
	if err := b.manyPending(ctx); err != nil {
		return nil, err
	}
	if err := b.manySent(ctx); err != nil {
		return nil, err
	}
	return b.rates.results([]group{groupBacklog}, map[string]string{groupBacklog.name: b.smallTable()}), nil
}

// manyPending measures a table of pending rows, and then the same table while
// another session keeps Postgres from cleaning it up.
func (b *backlog) manyPending(ctx context.Context) (err error) {
	table, err := b.newTable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	if err := table.fill(ctx, b.rows, "pending", b.progress); err != nil {
		return err
	}
	if err := table.clean(ctx); err != nil {
		return err
	}
	pending := thousands(b.rows) + " pending"
	if err := b.measure(ctx, pending, table, nil); err != nil {
		return err
	}
	release, err := holdXmin(ctx, table.dbURL)
	if err != nil {
		return err
	}
	return errors.Join(b.measure(ctx, pending+", an old transaction open", table, nil), release())
}

// manySent measures a table of rows that have been sent, and some new ones.
func (b *backlog) manySent(ctx context.Context) (err error) {
	table, err := b.newTable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	if err := table.fill(ctx, b.rows, "sent", b.progress); err != nil {
		return err
	}
	if err := table.clean(ctx); err != nil {
		return err
	}
	name := fmt.Sprintf("%s sent and %s pending", thousands(b.rows), thousands(b.drain))
	return b.measure(ctx, name, table, func(ctx context.Context) error {
		return table.fill(ctx, b.drain, "pending", nil)
	})
}

// measure takes turns with the small table. prepare may be nil.
func (b *backlog) measure(ctx context.Context, name string, table *outboxTable, prepare func(context.Context) error) error {
	b.rates.declare(groupBacklog.name, name)
	for round := range b.rounds {
		if err := b.measureSmall(ctx); err != nil {
			return err
		}
		if prepare != nil {
			if err := prepare(ctx); err != nil {
				return err
			}
		}
		n, took, err := table.drain(ctx, b.drain)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rate := b.rates.add(groupBacklog.name, name, n, took)
		b.progress.Printf("round %d of %d: %s: %.0f events/s", round+1, b.rounds, name, rate)
	}
	return nil
}

func (b *backlog) measureSmall(ctx context.Context) (err error) {
	table, err := b.newTable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	if err := table.fill(ctx, b.drain, "pending", nil); err != nil {
		return err
	}
	if err := table.clean(ctx); err != nil {
		return err
	}
	n, took, err := table.drain(ctx, b.drain)
	if err != nil {
		return fmt.Errorf("%s: %w", b.smallTable(), err)
	}
	rate := b.rates.add(groupBacklog.name, b.smallTable(), n, took)
	b.progress.Printf("%s: %.0f events/s", b.smallTable(), rate)
	return nil
}

func (b *backlog) newTable(ctx context.Context) (*outboxTable, error) {
	a, err := b.open(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := pgstore.Migrate(ctx, a.pool); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return &outboxTable{arena: a}, nil
}

// drainTimeout ends a measurement before all of its rows are out: what has become
// so slow needs no better figure.
const drainTimeout = 2 * time.Minute

var errSlow = errors.New("nothing was dispatched in time")

// drain measures how long a dispatcher takes for the next rows, until the broker has
// them, and returns of how many. Nothing but the schema's own autovacuum cleans up
// between measurements.
func (t *outboxTable) drain(ctx context.Context, rows int) (n int, took time.Duration, err error) {
	if err := t.redis.FlushAll(ctx).Err(); err != nil {
		return 0, 0, fmt.Errorf("redis: %w", err)
	}
	if _, err := t.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, 0, fmt.Errorf("checkpoint: %w", err)
	}
	d, err := t.newDispatcher(pgstore.New(t.pool), eventing.DispatcherConfig{})
	if err != nil {
		return 0, 0, err
	}
	runtime.GC()
	before := t.published.total()
	published := t.published.expect(rows)
	waiting, cancel := context.WithTimeoutCause(ctx, drainTimeout, errSlow)
	defer cancel()
	start := time.Now()
	stop := runDispatcher(ctx, d)
	err = wait(waiting, published)
	took, n = time.Since(start), min(rows, t.published.total()-before)
	stop()
	if errors.Is(err, errSlow) && n > 0 {
		err = nil
	}
	return n, took, err
}

// holdXmin opens a transaction that sees the database as it is now: what is
// deleted or updated from now on cannot be cleaned up before release.
func holdXmin(ctx context.Context, dbURL string) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, dbURL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	for _, statement := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT txid_current()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", statement, err), conn.Close(context.WithoutCancel(ctx)))
		}
	}
	return func() error {
		ctx := context.WithoutCancel(ctx)
		_, err := conn.Exec(ctx, "ROLLBACK")
		return errors.Join(err, conn.Close(ctx))
	}, nil
}

// thousands writes 10,000,000 as 10M and 100,000 as 100k, where that is exact.
func thousands(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
