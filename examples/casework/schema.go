package main

import (
	"context"
	"database/sql"
	"fmt"
)

// schema is the application's part of the database, in words that SQLite and
// PostgreSQL both understand. Points in time are in UTC.
var schema = []string{
	// The directory.
	`CREATE TABLE IF NOT EXISTS offices (office_id text PRIMARY KEY, name text NOT NULL, district text NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS users (user_id text PRIMARY KEY, role text NOT NULL, office_id text NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS citizens (
		citizen_id text PRIMARY KEY,
		district   text NOT NULL,
		address    text NOT NULL,
		sms        boolean NOT NULL
	)`,
	`CREATE INDEX IF NOT EXISTS citizens_address ON citizens (address)`,

	// Cases. The intake makes the row, the workflow engine alone changes where it stands.
	`CREATE TABLE IF NOT EXISTS cases (
		case_id          text PRIMARY KEY,
		case_reference   text NOT NULL,
		citizen_id       text NOT NULL,
		office_id        text NOT NULL,
		service_type     text NOT NULL,
		opened_at        timestamp NOT NULL,
		handler_id       text NOT NULL DEFAULT '',
		status           text NOT NULL DEFAULT '',
		eligibility      text NOT NULL DEFAULT '',
		paid             boolean NOT NULL DEFAULT false,
		payment_failures integer NOT NULL DEFAULT 0,
		held_from        text NOT NULL DEFAULT '',
		release_by       text NOT NULL DEFAULT ''
	)`,
	`CREATE INDEX IF NOT EXISTS cases_citizen ON cases (citizen_id)`,
	// Nothing in it is unique, on purpose: if an event had two effects, there would be two rows.
	`CREATE TABLE IF NOT EXISTS case_transitions (
		case_id         text NOT NULL,
		position        integer NOT NULL,
		previous_status text NOT NULL,
		new_status      text NOT NULL,
		reason          text NOT NULL,
		made_by         text NOT NULL,
		event_id        text NOT NULL,
		made_at         timestamp NOT NULL
	)`,
	`CREATE INDEX IF NOT EXISTS case_transitions_case ON case_transitions (case_id)`,
	`CREATE TABLE IF NOT EXISTS case_documents (
		document_id   text PRIMARY KEY,
		case_id       text NOT NULL,
		document_type text NOT NULL,
		state         text NOT NULL
	)`,
	`CREATE INDEX IF NOT EXISTS case_documents_case ON case_documents (case_id)`,

	// Notifications: one row for each recipient and channel of an event.
	`CREATE TABLE IF NOT EXISTS notifications (
		notification_id text PRIMARY KEY,
		event_id        text NOT NULL,
		case_id         text NOT NULL,
		notification    text NOT NULL,
		recipient       text NOT NULL,
		channel         text NOT NULL,
		priority        text NOT NULL,
		status          text NOT NULL,
		failures        integer NOT NULL,
		reason          text NOT NULL,
		instead_of      text NOT NULL DEFAULT ''
	)`,
	`CREATE INDEX IF NOT EXISTS notifications_event ON notifications (event_id)`,
	`CREATE INDEX IF NOT EXISTS notifications_status ON notifications (status)`,

	// Fraud: what is known about cases, officers and citizens, the signals that follow, and the score of each case.
	`CREATE TABLE IF NOT EXISTS fraud_facts (
		event_id text NOT NULL,
		kind     text NOT NULL,
		subject  text NOT NULL,
		case_id  text NOT NULL,
		at       timestamp NOT NULL,
		PRIMARY KEY (event_id, kind)
	)`,
	`CREATE INDEX IF NOT EXISTS fraud_facts_subject ON fraud_facts (kind, subject)`,
	`CREATE TABLE IF NOT EXISTS fraud_signals (
		signal_id   text PRIMARY KEY,
		case_id     text NOT NULL,
		signal_type text NOT NULL,
		severity    text NOT NULL,
		weight      integer NOT NULL
	)`,
	`CREATE INDEX IF NOT EXISTS fraud_signals_case ON fraud_signals (case_id)`,
	`CREATE TABLE IF NOT EXISTS risk_profiles (
		case_id     text PRIMARY KEY,
		score       integer NOT NULL DEFAULT 0,
		risk_level  text NOT NULL DEFAULT 'LOW',
		case_status text NOT NULL DEFAULT ''
	)`,
}

// createTables creates what is missing, each in a transaction of its own: PostgreSQL locks a table to see whether it has an index, and
// whoever locks one after the other meets those who write to them in another order.
func createTables(ctx context.Context, s eventStore) error {
	for _, statement := range schema {
		if err := s.InTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}); err != nil {
			return fmt.Errorf("create the tables: %w", err)
		}
	}
	return nil
}
