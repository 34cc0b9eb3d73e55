-- +goose Up

-- What has yet to be sent: appended events, and replays of dead letters. A row that
-- was written by hand has no partition until a dispatcher adopts it.
CREATE TABLE event_outbox (
    seq             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id              text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text NOT NULL,
    payload         text NOT NULL,
    status          text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
    attempts        integer NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL DEFAULT now(),
    sent_at         timestamptz,
    ordering_key    text COLLATE "C",
    partition       smallint CHECK (partition BETWEEN 0 AND 31),
    lane            text CHECK (lane IN ('critical', 'expedited')),
    due_at          timestamptz,
    consumer_name   text,
    generation      integer NOT NULL DEFAULT 0,
    forced          boolean,
    last_error      text,
    routing_version text
);
-- Each index that a settled row has to be entered into costs a fifth of the settlement or
-- more; those of the pending rows it only leaves. So IDs are unique among these.
-- That id is not null keeps this index out of plans that are not about an id: where
-- statistics know of no pending row, it looks as good as the next one.
CREATE UNIQUE INDEX event_outbox_id ON event_outbox (id) WHERE status = 'pending' AND id IS NOT NULL;
CREATE INDEX event_outbox_pending ON event_outbox (partition, seq) WHERE status = 'pending';
CREATE INDEX event_outbox_unadopted ON event_outbox (seq) WHERE status = 'pending' AND partition IS NULL;
CREATE INDEX event_outbox_dated ON event_outbox (seq) WHERE status = 'pending' AND due_at IS NOT NULL;
CREATE INDEX event_outbox_critical ON event_outbox (seq) WHERE status = 'pending' AND lane = 'critical';
CREATE INDEX event_outbox_event ON event_outbox (event_id) WHERE status <> 'pending' OR id <> event_id;
CREATE INDEX event_outbox_settled ON event_outbox (sent_at) WHERE status <> 'pending';

-- The inbox: what a consumer has processed. A row exists once processed, never before.
CREATE TABLE processed_events (
    event_id      text COLLATE "C" NOT NULL,
    consumer_name text COLLATE "C" NOT NULL,
    processed_at  timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    generation    integer NOT NULL DEFAULT 0,
    PRIMARY KEY (event_id, consumer_name)
);
CREATE INDEX processed_events_expiry ON processed_events (expires_at);

-- Deliveries in trouble: retrying, parked behind an earlier one of their key, or dead.
CREATE TABLE event_deliveries (
    consumer_name   text COLLATE "C" NOT NULL,
    event_id        text COLLATE "C" NOT NULL,
    event_type      text NOT NULL,
    ordering_key    text COLLATE "C",
    partition       smallint NOT NULL,
    position        bigint GENERATED ALWAYS AS IDENTITY,
    state           text NOT NULL CHECK (state IN ('retrying', 'parked', 'dead')),
    attempts        integer NOT NULL DEFAULT 0,
    prior_attempts  integer NOT NULL DEFAULT 0,
    due_at          timestamptz,
    generation      integer NOT NULL DEFAULT 0,
    forced          boolean,
    claim_token     text,
    claim_until     timestamptz,
    attempt_history text,
    payload         text NOT NULL,
    outbox_seq      bigint,
    routing_version text,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer_name, event_id)
);
CREATE INDEX event_deliveries_due ON event_deliveries (consumer_name, due_at) WHERE state <> 'dead';
CREATE INDEX event_deliveries_key ON event_deliveries (consumer_name, ordering_key, position);
CREATE INDEX event_deliveries_partition ON event_deliveries (consumer_name, partition, position) WHERE state <> 'dead';
CREATE INDEX event_deliveries_event ON event_deliveries (event_id);

-- An event that died, once; and each consumer that it died at. The consumer is empty
-- for what the dispatcher could not publish or decode.
CREATE TABLE dead_letter_events (
    event_id      text COLLATE "C" PRIMARY KEY,
    event_type    text NOT NULL,
    payload       text NOT NULL,
    error         text NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    attempts      integer NOT NULL DEFAULT 0
);
CREATE TABLE dead_letter_consumers (
    event_id        text COLLATE "C" NOT NULL REFERENCES dead_letter_events (event_id),
    consumer_name   text COLLATE "C" NOT NULL,
    stage           text NOT NULL CHECK (stage IN ('dispatch', 'decode', 'handle')),
    reason_code     text NOT NULL,
    reason_message  text NOT NULL,
    attempt_count   integer NOT NULL,
    attempt_history text NOT NULL,
    status          text NOT NULL CHECK (status IN ('pending', 'reviewed', 'replayed', 'closed')),
    resolution      text CHECK (resolution IN ('resolved', 'discarded')),
    notes           text NOT NULL DEFAULT '[]',
    ordering_key    text COLLATE "C",
    holds_key       text COLLATE "C",
    generation      integer NOT NULL DEFAULT 0,
    scheduled_at    timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    expires_at      timestamptz,
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
    scope       text NOT NULL,
    partition   smallint NOT NULL,
    holder      text NOT NULL,
    token       bigint NOT NULL,
    lease_until timestamptz,
    base        bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, partition)
);

-- Who is there to share the leases of a scope, and until when.
CREATE TABLE event_lease_holders (
    scope         text NOT NULL,
    holder        text NOT NULL,
    present_until timestamptz NOT NULL,
    PRIMARY KEY (scope, holder)
);

-- +goose Down
DROP TABLE event_lease_holders, event_leases, dead_letter_consumers, dead_letter_events, event_deliveries, processed_events, event_outbox;
