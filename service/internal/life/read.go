package life

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Reader reads lives of events.
type Reader struct {
	store *store.Store
	now   func() time.Time
}

// New returns a reader of a gateway's database.
func New(s *store.Store) *Reader { return &Reader{s, time.Now} }

// MaxEvents is how many events of one id are told.
const MaxEvents = 100

// Find returns the events that id names: those that couriers, or one source, call so, the one of that envelope, or else
// those of that trace, which takes reading all of the ledger. It reads payloads only if asked to. The tables are seen at
// one moment, the shipments a moment later.
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
	events, err := find(ctx, tx, id, source)
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
	return events, r.addShipments(ctx, events)
}

func (r *Reader) addShipments(ctx context.Context, events []Event) error {
	repository := shipments.New(r.store)
	for i := range events {
		s, err := repository.Get(ctx, events[i].ShipmentID)
		switch {
		case err == nil:
			events[i].Shipment = &Shipment{s.CurrentState, s.OrderID, s.LastEventID, s.LastEventAt, s.UpdatedAt}
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
	}
	return nil
}

const (
	entries = `
SELECT envelope_id, event_id, source, idempotency_key, event_type, shipment_id, trace_id, body_hash, status, attempt_count,
	coalesce(last_error_code, ''), coalesce(last_error_message, ''), occurred_at, received_at
FROM courier_ledger WHERE `
	inOrder     = ` AND ($2 = '' OR source = $2) ORDER BY first_seen_at, source LIMIT $3`
	byID        = entries + `(event_id = $1 OR envelope_id = $1)` + inOrder
	byTrace     = entries + `trace_id = $1` + inOrder
	traceLength = 32
	hashShown   = 12
)

// find returns the events with what the ledger has of them; for an id that it does not know, an envelope.
func find(ctx context.Context, tx *sql.Tx, id, source string) ([]Event, error) {
	events, err := ledgerEntries(ctx, tx, byID, id, source)
	if len(events) == 0 && len(id) == traceLength && err == nil {
		events, err = ledgerEntries(ctx, tx, byTrace, id, source)
	}
	if len(events) == 0 && source == "" {
		events = []Event{{EnvelopeID: id}}
	}
	return events, err
}

func ledgerEntries(ctx context.Context, tx *sql.Tx, query, id, source string) (events []Event, err error) {
	err = each(ctx, tx, query, []any{id, source, MaxEvents}, func(rows *sql.Rows) error {
		var e Event
		var occurred, received sqlstore.Timestamp
		var hash string
		if err := rows.Scan(&e.EnvelopeID, &e.CourierEventID, &e.Source, &e.IdempotencyKey, &e.EventType, &e.ShipmentID, &e.TraceID, &hash, &e.Status,
			&e.Attempts, &e.LastErrorCode, &e.LastError, &occurred, &received); err != nil {
			return err
		}
		e.OccurredAt = occurred.Time
		e.add(Step{At: received.Time, What: Accepted, BodyHash: hash[:min(len(hash), hashShown)]})
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
		{deliveries, []any{e.EnvelopeID, payloads}, s.delivery},
		{deadLetters, []any{e.EnvelopeID, payloads}, s.deadLetter},
		{inbox, []any{e.EnvelopeID}, s.processed},
		{outcomes, []any{e.ShipmentID, e.IdempotencyKey}, s.outcome},
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
	var status, message, payload string
	var created, settled, due sqlstore.Timestamp
	row := Step{What: Appended}
	if err := rows.Scan(&row.Row, &s.event.EventType, &status, &row.Attempt, &row.Consumer, &row.Replay, &created, &settled, &due, &message, &payload); err != nil {
		return err
	}
	s.event.keep(payload)
	attempts := row.Attempt
	row.At, row.Attempt = created.Time, 0
	s.event.add(row)
	if row.At, row.Attempt, row.Message = settled.Time, attempts, message; row.At.IsZero() {
		s.pending = true
		s.goesOn(due.Time)
		return nil
	}
	switch {
	case status == "failed":
		row.What = Failed
	case message != "":
		row.What = Aside
	default:
		row.What = Sent
		if row.At.After(s.sent.At) {
			s.sent = row
		}
	}
	s.event.add(row)
	return nil
}

func (s *standing) delivery(rows *sql.Rows) error {
	var consumer, state, history, payload string
	var attempts int
	var due sqlstore.Timestamp
	if err := rows.Scan(&consumer, &s.event.EventType, &state, &attempts, &due, &history, &payload); err != nil {
		return err
	}
	s.event.keep(payload)
	if s.state = eventing.State(state); s.state == eventing.StateRetrying {
		s.goesOn(due.Time)
	}
	return s.event.attempts(consumer, history)
}

func (s *standing) deadLetter(rows *sql.Rows) error {
	var history, notes, payload string
	var created, scheduled sqlstore.Timestamp
	var d eventing.DeadLetter
	died := Step{What: Died}
	if err := rows.Scan(&died.Consumer, &s.event.EventType, &died.Code, &died.Message, &died.Attempt, &history, &notes, &d.Status, &d.Resolution,
		&d.Generation, &created, &scheduled, &payload); err != nil {
		return err
	}
	s.event.keep(payload)
	s.goesOn(scheduled.Time)
	s.letters = append(s.letters, d)
	died.At = created.Time
	s.event.add(died)
	if err := json.Unmarshal([]byte(notes), &d.Acts); err != nil {
		return fmt.Errorf("the notes: %w", err)
	}
	for _, a := range d.Acts {
		s.event.add(Step{At: a.At, What: a.Act, Consumer: died.Consumer, By: a.By, Message: a.Note, Plan: a.Plan, DueAt: a.DueAt})
	}
	return s.event.attempts(died.Consumer, history)
}

func (s *standing) processed(rows *sql.Rows) error {
	step := Step{What: Processed}
	var at sqlstore.Timestamp
	err := rows.Scan(&step.Consumer, &at)
	step.At = at.Time
	s.event.add(step)
	s.inbox = true
	return err
}

func (s *standing) outcome(rows *sql.Rows) error {
	var step Step
	var at sqlstore.Timestamp
	err := rows.Scan(&step.What, &at)
	step.At = at.Time
	s.event.add(step)
	return err
}

// attempts adds those of a history.
func (e *Event) attempts(consumer, history string) error {
	var all []eventing.Attempt
	if err := json.Unmarshal([]byte(history), &all); err != nil {
		return fmt.Errorf("the history of attempts: %w", err)
	}
	for _, a := range all {
		e.add(Step{At: a.At, What: Attempt, Consumer: consumer, Attempt: a.Attempt, Code: string(a.ErrorCode), Message: a.ErrorMessage})
		e.Attempts = max(e.Attempts, a.Attempt)
	}
	return nil
}

// keep takes the payload out of an encoded envelope: of a courier's event, what the courier has sent.
func (e *Event) keep(encoded string) {
	envelope, err := eventing.DecodeEnvelope([]byte(encoded))
	if encoded == "" || err != nil {
		return
	}
	e.Payload = envelope.Payload
	var sent courier.Event
	if json.Unmarshal(envelope.Payload, &sent) == nil && sent.EventID != "" {
		e.Payload = sent.Payload
	}
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
