-- +goose Up

-- What of a row changes is in no index, and its page has room for what it becomes: so an update enters it into no
-- index. Expired rows are found by when they were first seen. The strongest lock comes first: else those who have
-- read the ledger, and now write it, would wait for this, and this for them.
DROP INDEX courier_ledger_status;
DROP INDEX courier_ledger_expiry;
CREATE INDEX courier_ledger_seen ON courier_ledger (first_seen_at);
ALTER TABLE courier_ledger SET (fillfactor = 50);

-- +goose Down
ALTER TABLE courier_ledger RESET (fillfactor);
DROP INDEX courier_ledger_seen;
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at);
