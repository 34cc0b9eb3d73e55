-- +goose Up

-- What has been received, and what is final, need not be entered into this index: only rows that stay in
-- between are looked for by their state.
DROP INDEX courier_ledger_status;
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at) WHERE status IN ('processing', 'failed');

-- +goose Down
DROP INDEX courier_ledger_status;
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at);
