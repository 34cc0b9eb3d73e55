package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

// What one would write by hand: no ordering, no routing, no dead letters.

const plainTable = `
CREATE TABLE plain (
	id      bigserial PRIMARY KEY,
	payload text NOT NULL,
	status  text NOT NULL DEFAULT 'pending',
	sent_at timestamptz
);
CREATE INDEX plain_pending ON plain (id) WHERE status = 'pending'`

const (
	markSent   = `UPDATE plain SET status = 'sent', sent_at = now() WHERE id = ANY($1)`
	deleteSent = `DELETE FROM plain WHERE id = ANY($1)`
)

// bareLoop drains the table by claims of 1,000 rows that skip each other's locks,
// one pipeline of XADDs, and one statement that settles, all in a transaction.
func bareLoop(workers int, settle string) func(context.Context, *arena) (time.Duration, error) {
	return func(ctx context.Context, a *arena) (time.Duration, error) {
		if _, err := a.pool.Exec(ctx, plainTable); err != nil {
			return 0, err
		}
		if _, err := a.copyPlain(ctx, a.events); err != nil {
			return 0, err
		}
		if err := a.settle(ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		var g errgroup.Group
		for range workers {
			g.Go(func() error {
				for {
					n, err := a.bareBatch(ctx, settle)
					if err != nil || n == 0 {
						return err
					}
				}
			})
		}
		err := g.Wait()
		took := time.Since(start)
		if got := a.published.total(); err == nil && got != len(a.events) {
			err = fmt.Errorf("published %d of %d events", got, len(a.events))
		}
		return took, err
	}
}

func (a *arena) bareBatch(ctx context.Context, settle string) (n int, err error) {
	tx, err := a.pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() {
		if rollback := tx.Rollback(context.WithoutCancel(ctx)); err == nil && !errors.Is(rollback, pgx.ErrTxClosed) {
			err = rollback
		}
	}()
	rows, err := tx.Query(ctx, `SELECT id, payload FROM plain WHERE status = 'pending' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`, batchSize)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	ids := make([]int64, 0, batchSize)
	pipeline := a.redis.Pipeline()
	for rows.Next() {
		var id int64
		var payload string
		if err := rows.Scan(&id, &payload); err != nil {
			return 0, err
		}
		ids = append(ids, id)
		pipeline.XAdd(ctx, &redis.XAddArgs{Stream: topic, Values: []any{"payload", payload}})
	}
	if err := rows.Err(); err != nil || len(ids) == 0 {
		return 0, err
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, settle, ids); err != nil {
		return 0, err
	}
	return len(ids), tx.Commit(ctx)
}

func (a *arena) copyPlain(ctx context.Context, events []event) (int64, error) {
	return a.pool.CopyFrom(ctx, pgx.Identifier{"plain"}, []string{"payload"},
		pgx.CopyFromSlice(len(events), func(i int) ([]any, error) { return []any{string(events[i].encoded)}, nil }))
}

const plainLog = `CREATE TABLE plain (id bigserial PRIMARY KEY, payload text NOT NULL)`

// bareInsert is one row in BEGIN, INSERT, COMMIT.
func bareInsert(ctx context.Context, a *arena) (time.Duration, error) {
	if _, err := a.pool.Exec(ctx, plainLog); err != nil {
		return 0, err
	}
	return a.each(ctx, "plain", func(ctx context.Context, e event) error {
		return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO plain (payload) VALUES ($1)`, string(e.encoded))
			return err
		})
	})
}

// bareCopy is what Postgres has for inserting many rows.
func bareCopy(ctx context.Context, a *arena) (time.Duration, error) {
	if _, err := a.pool.Exec(ctx, plainLog); err != nil {
		return 0, err
	}
	return a.batches(ctx, "plain", func(ctx context.Context, events []event) error {
		_, err := a.copyPlain(ctx, events)
		return err
	})
}
