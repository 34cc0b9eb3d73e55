package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

const unadopted = `SELECT seq FROM event_outbox WHERE partition IS NULL AND status = 'pending' ORDER BY seq LIMIT $1`

// Adopt implements [eventing.DispatchStore].
func (s *Store) Adopt(ctx context.Context, r eventing.AdoptRequest) (n int, err error) {
	var found []int64
	if err := each(ctx, s.db, s.sql(unadopted), []any{r.Limit}, func(rows Rows) error {
		found = append(found, 0)
		return rows.Scan(&found[len(found)-1])
	}); err != nil {
		return 0, err
	}
	for _, seq := range found {
		if adoptErr := s.retryTx(ctx, func(tx Tx) error { return s.adopt(ctx, tx, seq, r) }); adoptErr != nil {
			err = errors.Join(err, fmt.Errorf("row with seq %d: %w", seq, adoptErr))
			continue // one bad row must not keep the others waiting
		}
		n++
	}
	return n, err
}

const lockUnadopted = `
SELECT ` + OutboxColumns + ` FROM event_outbox WHERE seq = $1 AND partition IS NULL AND status = 'pending' {for update}`

const deadLettersOfEvent = `SELECT consumer_name, status FROM dead_letter_consumers WHERE event_id = $1 ORDER BY consumer_name {for update}`

// adopt takes in one row, if nobody else has.
func (s *Store) adopt(ctx context.Context, tx Tx, seq int64, r eventing.AdoptRequest) error {
	scanner := newRowScanner()
	found := false
	if err := each(ctx, tx, s.sql(lockUnadopted), []any{seq}, func(rows Rows) error {
		found = true
		return scanner.scan(rows)
	}); err != nil || !found {
		return err
	}
	row := scanner.row
	var open []string
	known := 0
	if err := each(ctx, tx, s.sql(deadLettersOfEvent), []any{row.EventID}, func(rows Rows) error {
		var consumer, status string
		known++
		if err := rows.Scan(&consumer, &status); err != nil {
			return err
		}
		if eventing.ReviewStatus(status) != eventing.StatusClosed {
			open = append(open, consumer)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.adoptKnown(ctx, tx, row, known, open, r); err != nil {
		return err
	}
	return eventing.Fault(ctx, eventing.FaultAdopted)
}

var errReservedID = errors.New("the event_id is of the form that bytes which do not decode are kept under, and no dead letter has it")

const deleteRow = `DELETE FROM event_outbox WHERE seq = $1`

// setRow leaves the hand-written ID free for the next time.
const setRow = `
UPDATE event_outbox SET id = id || '/' || CAST(seq AS text), status = $2, sent_at = $3, partition = 0, last_error = $4 WHERE seq = $1`

// Later rows may have been dispatched before it: it is given a due time, long ago, which
// tells so.
const completeRow = `
UPDATE event_outbox SET event_type = $2, payload = $3, ordering_key = $4, partition = $5, due_at = coalesce(due_at, $6) WHERE seq = $1`

func (s *Store) adoptKnown(ctx context.Context, tx Tx, row eventing.OutboxRow, known int, open []string, r eventing.AdoptRequest) error {
	complete, err := eventing.CompleteRow(row)
	switch {
	case known == 0 && eventing.IsUndecodable(row.EventID):
		return s.adoptMalformed(ctx, tx, row, errReservedID, r)
	case err != nil && !eventing.IsUndecodable(row.EventID):
		return s.adoptMalformed(ctx, tx, row, err, r)
	case len(open) > 0:
		if _, err := tx.Exec(ctx, s.sql(deleteRow), row.Seq); err != nil {
			return err
		}
		if err == nil {
			row.Payload = complete.Payload
		}
		for _, consumer := range open {
			if err := s.replayAdopted(ctx, tx, row, consumer, r); err != nil {
				return err
			}
		}
		return nil
	case known > 0:
		_, err := tx.Exec(ctx, s.sql(setRow), row.Seq, "sent", s.time(r.Now), "every dead letter of this event is closed: nothing to run")
		return err
	}
	_, err = tx.Exec(ctx, s.sql(completeRow), row.Seq, complete.EventType, string(complete.Payload), nullable(complete.OrderingKey), complete.Partition, s.time(longAgo))
	return err
}

var longAgo = time.Unix(0, 0)

const deliveryState = `SELECT state FROM event_deliveries WHERE consumer_name = $1 AND event_id = $2`

// replayAdopted replays an open dead letter, unless an earlier replay of it is
// retrying or parked at the consumer.
func (s *Store) replayAdopted(ctx context.Context, tx Tx, row eventing.OutboxRow, consumer string, r eventing.AdoptRequest) error {
	var state string
	found, err := one(ctx, tx, s.sql(deliveryState), []any{consumer, row.EventID}, &state)
	if err != nil {
		return err
	}
	if found && eventing.State(state) != eventing.StateDead {
		return nil
	}
	d, err := s.lockDeadLetter(ctx, tx, eventing.Target{EventID: row.EventID, Consumer: consumer})
	if err != nil {
		return err
	}
	d.Payload = row.Payload // perhaps mended by hand
	return s.replay(ctx, tx, d, eventing.Act{Act: "replayed", By: "sql", At: r.Now, Note: "row " + row.ID})
}

// adoptMalformed keeps what somebody wrote that is no envelope as a dead letter
// under an ID of its own: the event that it names may have others.
func (s *Store) adoptMalformed(ctx context.Context, tx Tx, row eventing.OutboxRow, problem error, r eventing.AdoptRequest) error {
	if _, err := tx.Exec(ctx, s.sql(setRow), row.Seq, "failed", s.time(r.Now), problem.Error()); err != nil {
		return err
	}
	id, payload := eventing.Undecodable(row.Payload)
	message := problem.Error()
	var invalid *eventing.InvalidEventError
	if errors.As(problem, &invalid) {
		message = "row " + row.ID + ": " + message
	}
	return s.recordDeath(ctx, tx, death{
		eventID: id, eventType: row.EventType, payload: payload,
		stage: eventing.StageDecode, reason: eventing.ReasonEnvelopeMalformed, message: message, attempts: 1,
		history: []eventing.Attempt{{Attempt: 1, At: r.Now.UTC(), Outcome: "failed", ErrorCode: eventing.ReasonEnvelopeMalformed, ErrorMessage: message}},
		now:     r.Now, until: r.DeadLetterUntil,
	})
}
