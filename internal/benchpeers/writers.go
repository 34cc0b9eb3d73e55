package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// writers is how many append at a time in the group append.
const writers = 16

// each measures write, called for every event by 16 writers, and then checks that
// the table has the rows.
func (a *arena) each(ctx context.Context, table string, write func(context.Context, event) error) (time.Duration, error) {
	if err := a.settle(ctx); err != nil {
		return 0, err
	}
	var next atomic.Int64
	g, ctxWriters := errgroup.WithContext(ctx)
	start := time.Now()
	for range writers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(a.events) {
					return nil
				}
				if err := write(ctxWriters, a.events[i]); err != nil {
					return err
				}
			}
		})
	}
	err := g.Wait()
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, a.checkRows(ctx, table)
}

// batches measures write, called for 1,000 events at a time by one writer.
func (a *arena) batches(ctx context.Context, table string, write func(context.Context, []event) error) (time.Duration, error) {
	if err := a.settle(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	for batch := range slices.Chunk(a.events, batchSize) {
		if err := write(ctx, batch); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	return took, a.checkRows(ctx, table)
}

// warm opens connections: a pool opens them when they are first needed.
func (a *arena) warm(ctx context.Context) error {
	conns := a.pool.AcquireAllIdle(ctx)
	defer func() {
		for _, c := range conns {
			c.Release()
		}
	}()
	for len(conns) < writers {
		c, err := a.pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("open connections: %w", err)
		}
		conns = append(conns, c)
	}
	return nil
}

func (a *arena) checkRows(ctx context.Context, table string) error {
	n := 0
	if err := a.pool.QueryRow(ctx, `SELECT count(*) FROM `+pgx.Identifier{table}.Sanitize()).Scan(&n); err != nil {
		return fmt.Errorf("count the rows of %s: %w", table, err)
	}
	if n != len(a.events) {
		return fmt.Errorf("%s has %d rows after %d events", table, n, len(a.events))
	}
	return nil
}
