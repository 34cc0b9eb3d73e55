-- +goose Up

-- Rows are found by their idempotency key, which their envelope has. SQLite drops a UNIQUE only with its table.
-- The first statement fails if another process has done this meanwhile: so it is not done twice.
DROP INDEX courier_ledger_event;
CREATE TABLE courier_ledger_new (
    idempotency_key    TEXT PRIMARY KEY,
    envelope_id        TEXT NOT NULL,
    event_id           TEXT NOT NULL,
    event_type         TEXT NOT NULL,
    source             TEXT NOT NULL,
    shipment_id        TEXT NOT NULL,
    occurred_at        TEXT NOT NULL,
    received_at        TEXT NOT NULL,
    trace_id           TEXT NOT NULL,
    body_hash          TEXT NOT NULL,
    status             TEXT NOT NULL CHECK (status IN ('received', 'processing', 'processed', 'failed', 'dead_lettered')),
    outcome            TEXT NOT NULL DEFAULT '',
    attempt_count      INTEGER NOT NULL DEFAULT 0,
    last_error_code    TEXT,
    last_error_message TEXT,
    first_seen_at      TEXT NOT NULL,
    updated_at         TEXT NOT NULL,
    expires_at         TEXT
);
INSERT INTO courier_ledger_new SELECT * FROM courier_ledger ORDER BY rowid;
DROP TABLE courier_ledger;
ALTER TABLE courier_ledger_new RENAME TO courier_ledger;
CREATE INDEX courier_ledger_event_id ON courier_ledger (event_id);
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at) WHERE status IN ('processing', 'failed');
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
DROP INDEX courier_ledger_event_id;
CREATE TABLE courier_ledger_new (
    idempotency_key    TEXT PRIMARY KEY,
    envelope_id        TEXT NOT NULL UNIQUE,
    event_id           TEXT NOT NULL,
    event_type         TEXT NOT NULL,
    source             TEXT NOT NULL,
    shipment_id        TEXT NOT NULL,
    occurred_at        TEXT NOT NULL,
    received_at        TEXT NOT NULL,
    trace_id           TEXT NOT NULL,
    body_hash          TEXT NOT NULL,
    status             TEXT NOT NULL CHECK (status IN ('received', 'processing', 'processed', 'failed', 'dead_lettered')),
    outcome            TEXT NOT NULL DEFAULT '',
    attempt_count      INTEGER NOT NULL DEFAULT 0,
    last_error_code    TEXT,
    last_error_message TEXT,
    first_seen_at      TEXT NOT NULL,
    updated_at         TEXT NOT NULL,
    expires_at         TEXT
);
INSERT INTO courier_ledger_new SELECT * FROM courier_ledger ORDER BY rowid;
DROP TABLE courier_ledger;
ALTER TABLE courier_ledger_new RENAME TO courier_ledger;
CREATE INDEX courier_ledger_event ON courier_ledger (event_id);
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at) WHERE status IN ('processing', 'failed');
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at) WHERE expires_at IS NOT NULL;
