-- +goose Up

-- What has just been received does not expire: it need not be entered into this index.
DROP INDEX courier_ledger_expiry;
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at) WHERE expires_at IS NOT NULL;

-- +goose Down
DROP INDEX courier_ledger_expiry;
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at);
