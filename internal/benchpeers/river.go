package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// courierJob carries the envelope as it is.
type courierJob struct {
	Envelope json.RawMessage `json:"envelope"`
}

// Kind implements [river.JobArgs].
func (courierJob) Kind() string { return "courier_event" }

// newRiver migrates, and returns a client that only inserts.
func newRiver(ctx context.Context, a *arena) (*river.Client[pgx.Tx], error) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	driver := riverpgxv5.New(a.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return river.NewClient(driver, &river.Config{Logger: quiet})
}

func riverInsert(ctx context.Context, a *arena) (time.Duration, error) {
	client, err := newRiver(ctx, a)
	if err != nil {
		return 0, err
	}
	return a.each(ctx, "river_job", func(ctx context.Context, e event) error {
		return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
			_, err := client.InsertTx(ctx, tx, courierJob{e.encoded}, nil)
			return err
		})
	})
}

// riverInsertMany inserts with COPY if fast, which returns no rows and handles no
// unique jobs.
func riverInsertMany(fast bool) func(context.Context, *arena) (time.Duration, error) {
	return func(ctx context.Context, a *arena) (time.Duration, error) {
		client, err := newRiver(ctx, a)
		if err != nil {
			return 0, err
		}
		return a.batches(ctx, "river_job", func(ctx context.Context, events []event) error {
			jobs := make([]river.InsertManyParams, len(events))
			for i, e := range events {
				jobs[i].Args = courierJob{e.encoded}
			}
			return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
				var err error
				if fast {
					_, err = client.InsertManyFastTx(ctx, tx, jobs)
				} else {
					_, err = client.InsertManyTx(ctx, tx, jobs)
				}
				return err
			})
		})
	}
}
