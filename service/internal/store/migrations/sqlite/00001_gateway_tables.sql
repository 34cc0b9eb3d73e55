-- +goose Up

-- One row for each idempotency key: what the gateway accepted, and how far the
-- worker is with it.
CREATE TABLE courier_ledger (
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
CREATE INDEX courier_ledger_event ON courier_ledger (event_id);
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at);
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at);

-- The projection. What an event leaves out stays as an earlier one said it, so the
-- state and the order have a time and a key of their own.
CREATE TABLE active_shipments (
    shipment_id     TEXT PRIMARY KEY,
    order_id        TEXT NOT NULL DEFAULT '',
    current_state   TEXT NOT NULL DEFAULT '',
    last_event_id   TEXT NOT NULL,
    last_event_type TEXT NOT NULL,
    last_event_at   TEXT NOT NULL,
    last_event_key  TEXT NOT NULL,
    state_at        TEXT,
    state_key       TEXT NOT NULL DEFAULT '',
    order_at        TEXT,
    order_key       TEXT NOT NULL DEFAULT '',
    metadata        TEXT NOT NULL DEFAULT '{}',
    created_at      TEXT NOT NULL,
    updated_at      TEXT NOT NULL
);
CREATE INDEX active_shipments_order ON active_shipments (order_id);
CREATE INDEX active_shipments_state ON active_shipments (current_state, updated_at);

-- What each processed event did, append-only and without any uniqueness: a second
-- application would show.
CREATE TABLE shipment_events (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    shipment_id     TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    outcome         TEXT NOT NULL CHECK (outcome IN ('applied', 'late')),
    occurred_at     TEXT NOT NULL,
    processed_at    TEXT NOT NULL
);
CREATE INDEX shipment_events_shipment ON shipment_events (shipment_id, seq);

-- +goose Down
DROP TABLE shipment_events;
DROP TABLE active_shipments;
DROP TABLE courier_ledger;
