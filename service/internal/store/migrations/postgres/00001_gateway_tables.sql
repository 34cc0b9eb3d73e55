-- +goose Up

-- One row for each idempotency key: what the gateway accepted, and how far the
-- worker is with it.
CREATE TABLE courier_ledger (
    idempotency_key    text COLLATE "C" PRIMARY KEY,
    envelope_id        text COLLATE "C" NOT NULL UNIQUE,
    event_id           text COLLATE "C" NOT NULL,
    event_type         text NOT NULL,
    source             text NOT NULL,
    shipment_id        text NOT NULL,
    occurred_at        timestamptz NOT NULL,
    received_at        timestamptz NOT NULL,
    trace_id           text NOT NULL,
    body_hash          text NOT NULL,
    status             text NOT NULL CHECK (status IN ('received', 'processing', 'processed', 'failed', 'dead_lettered')),
    outcome            text NOT NULL DEFAULT '',
    attempt_count      integer NOT NULL DEFAULT 0,
    last_error_code    text,
    last_error_message text,
    first_seen_at      timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    expires_at         timestamptz
);
CREATE INDEX courier_ledger_event ON courier_ledger (event_id);
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at);
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at);

-- The projection. What an event leaves out stays as an earlier one said it, so the
-- state and the order have a time and a key of their own.
CREATE TABLE active_shipments (
    shipment_id     text COLLATE "C" PRIMARY KEY,
    order_id        text NOT NULL DEFAULT '',
    current_state   text NOT NULL DEFAULT '',
    last_event_id   text NOT NULL,
    last_event_type text NOT NULL,
    last_event_at   timestamptz NOT NULL,
    last_event_key  text NOT NULL,
    state_at        timestamptz,
    state_key       text NOT NULL DEFAULT '',
    order_at        timestamptz,
    order_key       text NOT NULL DEFAULT '',
    metadata        text NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX active_shipments_order ON active_shipments (order_id);
CREATE INDEX active_shipments_state ON active_shipments (current_state, updated_at);

-- What each processed event did, append-only and without any uniqueness: a second
-- application would show.
CREATE TABLE shipment_events (
    seq             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shipment_id     text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    event_id        text NOT NULL,
    outcome         text NOT NULL CHECK (outcome IN ('applied', 'late')),
    occurred_at     timestamptz NOT NULL,
    processed_at    timestamptz NOT NULL
);
CREATE INDEX shipment_events_shipment ON shipment_events (shipment_id, seq);

-- +goose Down
DROP TABLE shipment_events, active_shipments, courier_ledger;
