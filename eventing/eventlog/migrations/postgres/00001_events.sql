-- +goose Up

-- Every event that the log was given, once.
CREATE TABLE events (
    id             UUID PRIMARY KEY DEFAULT gen_random_uuid(),
    event_type     TEXT NOT NULL,
    event_id       UUID UNIQUE NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id   UUID NOT NULL,
    payload        JSONB NOT NULL,
    metadata       JSONB DEFAULT '{}',
    created_at     TIMESTAMPTZ DEFAULT now(),
    processed_at   TIMESTAMPTZ,
    retry_count    INTEGER DEFAULT 0,
    status         TEXT DEFAULT 'pending'
);
CREATE INDEX idx_events_type ON events (event_type);
CREATE INDEX idx_events_aggregate ON events (aggregate_type, aggregate_id);
CREATE INDEX idx_events_status ON events (status);
CREATE INDEX idx_events_created ON events (created_at);
-- What the pruner looks for: the old events of a type, which among the old ones of all types may
-- be few, or none. The expression is for the planner, which expects some among them anyway: it
-- cannot use idx_events_created for it, and walk over all that is kept longer.
CREATE INDEX events_retention ON events (event_type, (created_at AT TIME ZONE 'UTC'));

-- The table is append-only. Only who says so, for one transaction, deletes:
-- SET LOCAL waybill.prune_events = 'on'
-- +goose StatementBegin
CREATE FUNCTION events_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'UPDATE' AND current_setting('waybill.prune_events', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the table events is append-only: % is refused', TG_OP USING
        ERRCODE = 'insufficient_privilege',
        HINT = 'To delete what must go, begin a transaction with: SET LOCAL waybill.prune_events = ''on''';
END $$;
-- +goose StatementEnd
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_append_only();

-- +goose Down
DROP TABLE events;
DROP FUNCTION events_append_only();
