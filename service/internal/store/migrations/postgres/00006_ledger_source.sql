-- +goose Up

-- An event is found by its idempotency key, which mostly is its source and id: ids, which are scattered, need not be
-- entered into an index then, only sources, which are few.
CREATE INDEX courier_ledger_source ON courier_ledger (source);
CREATE INDEX courier_ledger_other_key ON courier_ledger (event_id) WHERE idempotency_key <> source || ':' || event_id;
DROP INDEX courier_ledger_event;

-- +goose Down
CREATE INDEX courier_ledger_event ON courier_ledger (event_id);
DROP INDEX courier_ledger_other_key;
DROP INDEX courier_ledger_source;
