-- +goose Up

-- Rows are found by their idempotency key, which their envelope has.
ALTER TABLE courier_ledger DROP CONSTRAINT courier_ledger_envelope_id_key;

-- +goose Down
ALTER TABLE courier_ledger ADD CONSTRAINT courier_ledger_envelope_id_key UNIQUE (envelope_id);
