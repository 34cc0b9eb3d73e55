-- +goose Up

-- Every event that the log was given, once.
CREATE TABLE events (
    id             TEXT PRIMARY KEY NOT NULL DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2)
        || '-' || substr('89AB', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    event_type     TEXT NOT NULL,
    event_id       TEXT UNIQUE NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id   TEXT NOT NULL,
    payload        TEXT NOT NULL,
    metadata       TEXT DEFAULT '{}',
    created_at     TEXT DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    processed_at   TEXT,
    retry_count    INTEGER DEFAULT 0,
    status         TEXT DEFAULT 'pending'
);
CREATE INDEX idx_events_type ON events (event_type);
CREATE INDEX idx_events_aggregate ON events (aggregate_type, aggregate_id);
CREATE INDEX idx_events_status ON events (status);
CREATE INDEX idx_events_created ON events (created_at);
-- What the pruner looks for: the old events of a type, which among the old ones of all types may
-- be few, or none.
CREATE INDEX events_retention ON events (event_type, created_at);

-- The table is append-only. Only who says so, by a row here that is gone before the
-- transaction commits, deletes.
CREATE TABLE events_prune (allowed INTEGER NOT NULL);

-- +goose StatementBegin
CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN
    SELECT RAISE(ABORT, 'the table events is append-only: UPDATE is refused');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER events_no_delete BEFORE DELETE ON events WHEN NOT EXISTS (SELECT 1 FROM events_prune) BEGIN
    SELECT RAISE(ABORT, 'the table events is append-only: DELETE is refused; to delete what must go, insert a row into events_prune first, and delete it in the same transaction');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE would delete the old row, and ask no trigger for leave.
-- +goose StatementBegin
CREATE TRIGGER events_no_replace BEFORE INSERT ON events WHEN EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id OR id = NEW.id) BEGIN
    SELECT CASE WHEN EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id) THEN RAISE(IGNORE)
        ELSE RAISE(ABORT, 'the table events is append-only: there is another event with this id') END;
END;
-- +goose StatementEnd

-- +goose Down
DROP TABLE events;
DROP TABLE events_prune;
