package main

import (
	"context"
	"database/sql"
	"fmt"
)

// schema is the application's part of the database, in words that SQLite and
// PostgreSQL both understand. Points in time are in UTC.
//
// Nothing in statistics and settlements is unique, on purpose: if an event had two
// effects, there would be two rows.
var schema = []string{
	`CREATE TABLE IF NOT EXISTS windows (
		window_id  text PRIMARY KEY,
		tenant_id  text NOT NULL,
		station_id text NOT NULL,
		closed_at  timestamp NOT NULL,
		samples    integer NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS statistics (
		window_id text NOT NULL,
		samples   integer NOT NULL,
		min_wh    bigint NOT NULL,
		max_wh    bigint NOT NULL,
		total_wh  bigint NOT NULL,
		average   double precision NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS tariffs (
		tenant_id     text NOT NULL,
		station_id    text NOT NULL,
		cents_per_kwh bigint NOT NULL,
		PRIMARY KEY (tenant_id, station_id)
	)`,
	`CREATE TABLE IF NOT EXISTS settlements (
		window_id  text NOT NULL,
		tenant_id  text NOT NULL,
		cents      bigint NOT NULL,
		settled_at timestamp NOT NULL
	)`,
	`CREATE TABLE IF NOT EXISTS bills (
		tenant_id text PRIMARY KEY,
		windows   bigint NOT NULL,
		cents     bigint NOT NULL
	)`,
}

func createTables(ctx context.Context, s eventStore) error {
	return s.InTx(ctx, func(tx *sql.Tx) error {
		for _, statement := range schema {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("create the tables: %w", err)
			}
		}
		return nil
	})
}
