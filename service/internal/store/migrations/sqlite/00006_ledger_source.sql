-- +goose Up

-- An event is found by its idempotency key, which mostly is its source and id: ids, which are scattered, need not be
-- entered into an index then, only sources, which are few. The first statement fails if another process has done this meanwhile.
DROP INDEX courier_ledger_event_id;
CREATE INDEX courier_ledger_source ON courier_ledger (source);
CREATE INDEX courier_ledger_other_key ON courier_ledger (event_id) WHERE idempotency_key <> source || ':' || event_id;

-- +goose Down
DROP INDEX courier_ledger_other_key;
DROP INDEX courier_ledger_source;
CREATE INDEX courier_ledger_event_id ON courier_ledger (event_id);
