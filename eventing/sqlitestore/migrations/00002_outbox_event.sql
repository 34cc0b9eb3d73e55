-- +goose Up

-- A pending row that is not a replay is found by its id; so appends need not enter it here.
DROP INDEX event_outbox_event;
CREATE INDEX event_outbox_event ON event_outbox (event_id) WHERE status <> 'pending' OR id <> event_id;

-- +goose Down
DROP INDEX event_outbox_event;
CREATE INDEX event_outbox_event ON event_outbox (event_id);
