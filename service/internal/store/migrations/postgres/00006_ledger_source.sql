-- +goose Up

-- An event is found by its idempotency key, which mostly is its source and id: ids, which are scattered, need not be
-- entered into an index then, only sources, which are few. The strongest lock comes first: else those who have read the
-- ledger, and now write it, would wait for this, and this for them.
DROP INDEX courier_ledger_event;
CREATE INDEX courier_ledger_source ON courier_ledger (source COLLATE "C");
CREATE INDEX courier_ledger_other_key ON courier_ledger (event_id) WHERE idempotency_key <> source || ':' || event_id;

-- +goose Down
DROP INDEX courier_ledger_other_key;
DROP INDEX courier_ledger_source;
CREATE INDEX courier_ledger_event ON courier_ledger (event_id);
