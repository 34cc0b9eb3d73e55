package life

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Reader reads lives of events from an SQL database.
type Reader struct {
	store *store.Store
	now   func() time.Time
}

// New returns a reader of a gateway's SQL database.
func New(s *store.Store) *Reader { return &Reader{s, time.Now} }

// Find returns the events that id names: those that couriers, or one source, call so, the one of that envelope, or else
// those of that trace. All of the ledger is read for a trace, for an envelope that only inbox and ledger have any more, and if there
// are more than 10,000 sources. Find reads payloads only if asked to. The tables are seen at one moment, the shipments a moment later.
func (r *Reader) Find(ctx context.Context, id, source string, payloads bool) ([]Event, error) {
	// Of SQLite every transaction sees one moment, and its driver takes no level.
	options := &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	if r.store.Embedded {
		options.Isolation = sql.LevelDefault
	}
	tx, err := r.store.Read.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	events, err := r.find(ctx, tx, id, source)
	if err != nil {
		return nil, fmt.Errorf("look up %q in the ledger: %w", id, err)
	}
	for i := range events {
		if err := r.tell(ctx, tx, &events[i], payloads); err != nil {
			return nil, fmt.Errorf("read what became of %s: %w", events[i].EnvelopeID, err)
		}
	}
	if len(events) == 1 && len(events[0].Steps) == 0 { // nobody knows that envelope
		return nil, nil
	}
	if err := tx.Rollback(); err != nil {
		return nil, err
	}
	return events, addShipments(ctx, shipments.New(r.store), events)
}

const (
	entries = `
SELECT envelope_id, event_id, source, idempotency_key, event_type, shipment_id, trace_id, body_hash, status, attempt_count,
	coalesce(last_error_code, ''), coalesce(last_error_message, ''), occurred_at, received_at
FROM `
	inOrder = ` AND ($2 = '' OR source = $2) ORDER BY first_seen_at, source LIMIT $3`
	byScan  = entries + `courier_ledger WHERE (envelope_id = $1 OR trace_id = $1)` + inOrder
)

// byID is the SELECT of the events that are called so, or whose envelope is, if its key is in the list of $6.
func (r *Reader) byID(sources ledger.SourceList) string {
	return entries + `(` + sources.Select(r.store, "$4", "$5") + ` UNION ALL
	SELECT * FROM courier_ledger WHERE envelope_id = $1 AND event_id <> $1 AND ` + r.store.In("idempotency_key", "$6") + `) l WHERE true` + inOrder
}

// find returns the events with what the ledger has of them; for an id that it does not know, an envelope.
func (r *Reader) find(ctx context.Context, tx *sql.Tx, id, source string) ([]Event, error) {
	ids := []string{id}
	keys, err := ledger.KeysOf(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	sources, err := ledger.Sources(ctx, r.store, tx, source)
	if err != nil {
		return nil, err
	}
	events, err := ledgerEntries(ctx, tx, r.byID(sources), id, source, MaxEvents, r.store.List(ids), r.store.List(sources.Keys(ids)), r.store.List(keys))
	if len(events) == 0 && (len(id) == traceLength || uuid.Validate(id) == nil) && err == nil {
		events, err = ledgerEntries(ctx, tx, byScan, id, source, MaxEvents)
	}
	if len(events) == 0 && source == "" {
		events = []Event{{EnvelopeID: id}}
	}
	return events, err
}

func ledgerEntries(ctx context.Context, tx *sql.Tx, query string, args ...any) (events []Event, err error) {
	err = each(ctx, tx, query, args, func(rows *sql.Rows) error {
		var e Event
		var occurred, received sqlstore.Timestamp
		var hash string
		if err := rows.Scan(&e.EnvelopeID, &e.CourierEventID, &e.Source, &e.IdempotencyKey, &e.EventType, &e.ShipmentID, &e.TraceID, &hash, &e.Status,
			&e.Attempts, &e.LastErrorCode, &e.LastError, &occurred, &received); err != nil {
			return err
		}
		e.OccurredAt = occurred.Time
		e.accepted(received.Time, hash)
		events = append(events, e)
		return nil
	})
	return events, err
}

// Each part of the first has an index of its own.
const (
	outboxRows = `
SELECT seq, event_type, status, attempts, coalesce(consumer_name, ''), generation, created_at, sent_at, due_at, coalesce(last_error, ''), CASE WHEN $2 THEN payload ELSE '' END
FROM event_outbox WHERE event_id = $1 AND (status <> 'pending' OR id <> event_id)
UNION ALL
SELECT seq, event_type, status, attempts, coalesce(consumer_name, ''), generation, created_at, sent_at, due_at, coalesce(last_error, ''), CASE WHEN $2 THEN payload ELSE '' END
FROM event_outbox WHERE id = $1 AND status = 'pending' AND id = event_id`
	deliveries = `
SELECT consumer_name, event_type, state, attempts, due_at, coalesce(attempt_history, '[]'), CASE WHEN $2 THEN payload ELSE '' END
FROM event_deliveries WHERE event_id = $1`
	deadLetters = `
SELECT c.consumer_name, e.event_type, c.reason_code, c.reason_message, c.attempt_count, c.attempt_history, c.notes, c.status, coalesce(c.resolution, ''),
	c.generation, c.created_at, c.scheduled_at, CASE WHEN $2 THEN e.payload ELSE '' END
FROM dead_letter_consumers c JOIN dead_letter_events e ON e.event_id = c.event_id WHERE c.event_id = $1`
	inbox    = `SELECT consumer_name, processed_at FROM processed_events WHERE event_id = $1`
	outcomes = `SELECT outcome, processed_at FROM shipment_events WHERE shipment_id = $1 AND idempotency_key = $2`
)

// tell adds to an event what the tables have of it.
func (r *Reader) tell(ctx context.Context, tx *sql.Tx, e *Event, payloads bool) error {
	s := standing{event: e, now: r.now()}
	for _, part := range []struct {
		query string
		args  []any
		scan  func(*sql.Rows) error
	}{
		{outboxRows, []any{e.EnvelopeID, payloads}, s.outboxRow},
		{deliveries, []any{e.EnvelopeID, payloads}, s.deliveryRow},
		{deadLetters, []any{e.EnvelopeID, payloads}, s.letterRow},
		{inbox, []any{e.EnvelopeID}, s.inboxRow},
		{outcomes, []any{e.ShipmentID, e.IdempotencyKey}, s.outcomeRow},
	} {
		if err := each(ctx, tx, part.query, part.args, part.scan); err != nil {
			return err
		}
	}
	e.inOrder()
	e.Standing = s.is()
	return nil
}

func (s *standing) outboxRow(rows *sql.Rows) error {
	var row Step
	var status, payload string
	var created, settled, due sqlstore.Timestamp
	if err := rows.Scan(&row.Row, &s.event.EventType, &status, &row.Attempt, &row.Consumer, &row.Replay, &created, &settled, &due, &row.Message, &payload); err != nil {
		return err
	}
	s.event.keep([]byte(payload))
	s.row(row, status == "failed", row.Message != "", created.Time, settled.Time, due.Time)
	return nil
}

func (s *standing) deliveryRow(rows *sql.Rows) error {
	var consumer, state, history, payload string
	var attempts int
	var due sqlstore.Timestamp
	if err := rows.Scan(&consumer, &s.event.EventType, &state, &attempts, &due, &history, &payload); err != nil {
		return err
	}
	s.event.keep([]byte(payload))
	all, err := decodeHistory(history)
	s.delivery(consumer, state, due.Time, all)
	return err
}

func (s *standing) letterRow(rows *sql.Rows) error {
	var history, notes, payload string
	var created, scheduled sqlstore.Timestamp
	var d eventing.DeadLetter
	if err := rows.Scan(&d.Consumer, &s.event.EventType, &d.Reason, &d.Message, &d.AttemptCount, &history, &notes, &d.Status, &d.Resolution,
		&d.Generation, &created, &scheduled, &payload); err != nil {
		return err
	}
	s.event.keep([]byte(payload))
	d.CreatedAt, d.ScheduledAt = created.Time, scheduled.Time
	if err := json.Unmarshal([]byte(notes), &d.Acts); err != nil {
		return fmt.Errorf("the notes: %w", err)
	}
	var err error
	d.History, err = decodeHistory(history)
	s.letter(d)
	return err
}

func (s *standing) inboxRow(rows *sql.Rows) error {
	var consumer string
	var at sqlstore.Timestamp
	err := rows.Scan(&consumer, &at)
	s.processed(consumer, at.Time)
	return err
}

func (s *standing) outcomeRow(rows *sql.Rows) error {
	var step Step
	var at sqlstore.Timestamp
	err := rows.Scan(&step.What, &at)
	step.At = at.Time
	s.event.add(step)
	return err
}

func decodeHistory(history string) (all []eventing.Attempt, err error) {
	if err := json.Unmarshal([]byte(history), &all); err != nil {
		return nil, fmt.Errorf("the history of attempts: %w", err)
	}
	return all, nil
}

func each(ctx context.Context, tx *sql.Tx, query string, args []any, scan func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
