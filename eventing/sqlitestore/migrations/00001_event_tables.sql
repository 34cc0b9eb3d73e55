-- +goose Up

-- What has yet to be sent: appended events, and replays of dead letters. A row that
-- was written by hand has no partition until a dispatcher adopts it.
CREATE TABLE event_outbox (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,
    id              TEXT NOT NULL UNIQUE,
    event_id        TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    payload         TEXT NOT NULL,
    status          TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    sent_at         TEXT,
    ordering_key    TEXT,
    partition       INTEGER CHECK (typeof(partition) = 'integer' AND partition BETWEEN 0 AND 31 OR partition IS NULL),
    lane            TEXT CHECK (lane IN ('critical', 'expedited')),
    due_at          TEXT,
    consumer_name   TEXT,
    generation      INTEGER NOT NULL DEFAULT 0 CHECK (typeof(generation) = 'integer'),
    forced          INTEGER CHECK (forced IN (0, 1)),
    last_error      TEXT,
    routing_version TEXT
);
CREATE INDEX event_outbox_pending ON event_outbox (seq) WHERE status = 'pending' AND partition IS NOT NULL;
CREATE INDEX event_outbox_unadopted ON event_outbox (seq) WHERE status = 'pending' AND partition IS NULL;
CREATE INDEX event_outbox_dated ON event_outbox (seq) WHERE status = 'pending' AND due_at IS NOT NULL;
CREATE INDEX event_outbox_critical ON event_outbox (seq) WHERE status = 'pending' AND lane = 'critical';
CREATE INDEX event_outbox_event ON event_outbox (event_id);
CREATE INDEX event_outbox_settled ON event_outbox (sent_at) WHERE status <> 'pending';

-- The inbox: what a consumer has processed. A row exists once processed, never before.
CREATE TABLE processed_events (
    event_id      TEXT NOT NULL,
    consumer_name TEXT NOT NULL,
    processed_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    expires_at    TEXT,
    generation    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (event_id, consumer_name)
);
CREATE INDEX processed_events_expiry ON processed_events (expires_at);

-- Deliveries in trouble: retrying, parked behind an earlier one of their key, or dead.
CREATE TABLE event_deliveries (
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_name   TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    ordering_key    TEXT,
    partition       INTEGER NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('retrying', 'parked', 'dead')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    prior_attempts  INTEGER NOT NULL DEFAULT 0,
    due_at          TEXT,
    generation      INTEGER NOT NULL DEFAULT 0,
    forced          INTEGER CHECK (forced IN (0, 1)),
    claim_token     TEXT,
    claim_until     TEXT,
    attempt_history TEXT,
    payload         TEXT NOT NULL,
    outbox_seq      INTEGER,
    routing_version TEXT,
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    UNIQUE (consumer_name, event_id)
);
CREATE INDEX event_deliveries_due ON event_deliveries (consumer_name, due_at) WHERE state <> 'dead';
CREATE INDEX event_deliveries_key ON event_deliveries (consumer_name, ordering_key, position);
CREATE INDEX event_deliveries_partition ON event_deliveries (consumer_name, partition, position) WHERE state <> 'dead';
CREATE INDEX event_deliveries_event ON event_deliveries (event_id);

-- An event that died, once; and each consumer that it died at. The consumer is empty
-- for what the dispatcher could not publish or decode.
CREATE TABLE dead_letter_events (
    event_id      TEXT PRIMARY KEY,
    event_type    TEXT NOT NULL,
    payload       TEXT NOT NULL,
    error         TEXT NOT NULL,
    first_seen_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    last_seen_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    attempts      INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE dead_letter_consumers (
    event_id        TEXT NOT NULL REFERENCES dead_letter_events (event_id),
    consumer_name   TEXT NOT NULL,
    stage           TEXT NOT NULL CHECK (stage IN ('dispatch', 'decode', 'handle')),
    reason_code     TEXT NOT NULL,
    reason_message  TEXT NOT NULL,
    attempt_count   INTEGER NOT NULL,
    attempt_history TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('pending', 'reviewed', 'replayed', 'closed')),
    resolution      TEXT CHECK (resolution IN ('resolved', 'discarded')),
    notes           TEXT NOT NULL DEFAULT '[]',
    ordering_key    TEXT,
    holds_key       TEXT,
    generation      INTEGER NOT NULL DEFAULT 0,
    scheduled_at    TEXT,
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    updated_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    expires_at      TEXT,
    PRIMARY KEY (event_id, consumer_name)
);
CREATE INDEX dead_letter_consumers_status ON dead_letter_consumers (status, created_at);
CREATE INDEX dead_letter_consumers_place ON dead_letter_consumers (created_at, event_id, consumer_name);
CREATE INDEX dead_letter_consumers_scheduled ON dead_letter_consumers (scheduled_at) WHERE scheduled_at IS NOT NULL;
CREATE INDEX dead_letter_consumers_expiry ON dead_letter_consumers (expires_at);
CREATE INDEX dead_letter_consumers_holds ON dead_letter_consumers (holds_key) WHERE holds_key IS NOT NULL AND status <> 'closed';

-- Who holds which partition, of dispatch or of an ordered consumer. The token grows
-- with each change of holder. base: nothing is pending up to this seq, or will be.
CREATE TABLE event_leases (
    scope       TEXT NOT NULL,
    partition   INTEGER NOT NULL,
    holder      TEXT NOT NULL,
    token       INTEGER NOT NULL,
    lease_until TEXT,
    base        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, partition)
);

-- Who is there to share the leases of a scope, and until when.
CREATE TABLE event_lease_holders (
    scope         TEXT NOT NULL,
    holder        TEXT NOT NULL,
    present_until TEXT NOT NULL,
    PRIMARY KEY (scope, holder)
);

-- +goose Down
DROP TABLE event_lease_holders;
DROP TABLE event_leases;
DROP TABLE dead_letter_consumers;
DROP TABLE dead_letter_events;
DROP TABLE event_deliveries;
DROP TABLE processed_events;
DROP TABLE event_outbox;
