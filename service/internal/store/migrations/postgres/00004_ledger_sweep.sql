-- +goose Up

-- What of a row changes is in no index, and its page has room for what it becomes: so an update enters it into no
-- index. Expired rows are found by when they were first seen. The ledger can be read while the index is made, not written.
CREATE INDEX courier_ledger_seen ON courier_ledger (first_seen_at);
DROP INDEX courier_ledger_status;
DROP INDEX courier_ledger_expiry;
ALTER TABLE courier_ledger SET (fillfactor = 50);

-- +goose Down
ALTER TABLE courier_ledger RESET (fillfactor);
CREATE INDEX courier_ledger_expiry ON courier_ledger (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX courier_ledger_status ON courier_ledger (status, updated_at);
DROP INDEX courier_ledger_seen;
