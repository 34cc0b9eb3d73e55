-- +goose Up

-- The state that was replaced by the current one, in the order of arrival: what the statement
-- that changes it returns.
ALTER TABLE active_shipments ADD COLUMN previous_state text NOT NULL DEFAULT '';
-- Keys are compared, byte by byte as everywhere.
ALTER TABLE active_shipments ALTER COLUMN last_event_key TYPE text COLLATE "C",
    ALTER COLUMN state_key TYPE text COLLATE "C",
    ALTER COLUMN order_key TYPE text COLLATE "C";

-- +goose Down
ALTER TABLE active_shipments DROP COLUMN previous_state;
