-- +goose Up

-- The state that was replaced by the current one, in the order of arrival: what the statement
-- that changes it returns.
ALTER TABLE active_shipments ADD COLUMN previous_state TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE active_shipments DROP COLUMN previous_state;
