package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
)

// steps are the transitions of a row: from dead_lettered an event goes on when it is replayed.
// Processing begins and ends in one transaction, so that what a row shows is the end of
// several: see [Concludes].
var steps = map[courier.Status][]courier.Status{
	courier.StatusReceived:     {courier.StatusProcessing},
	courier.StatusProcessing:   {courier.StatusProcessed, courier.StatusFailed},
	courier.StatusFailed:       {courier.StatusProcessing, courier.StatusDeadLettered},
	courier.StatusDeadLettered: {courier.StatusProcessing},
}

// Concludes reports whether a run that finds a row in one state can leave it in another.
func Concludes(from, to courier.Status) bool {
	if to == courier.StatusProcessing { // no run ends so
		return false
	}
	running := from
	if from != courier.StatusProcessing {
		if !isStep(from, courier.StatusProcessing) {
			return false
		}
		running = courier.StatusProcessing
	}
	return isStep(running, to) || isStep(running, courier.StatusFailed) && isStep(courier.StatusFailed, to)
}

func isStep(from, to courier.Status) bool {
	for _, next := range steps[from] {
		if next == to {
			return true
		}
	}
	return false
}

// Until returns when a row expires that reaches a final state now.
func (l *Ledger) Until(now time.Time) time.Time { return now.Add(l.retention) }

// From processed no step leads on; from all others, one to each end of a run.
const conclude = `
UPDATE courier_ledger SET status = $3, attempt_count = $4, last_error_code = coalesce($5, last_error_code),
	last_error_message = coalesce($6, last_error_message), updated_at = $7, expires_at = $8
WHERE idempotency_key = $1 AND envelope_id = $2 AND status <> 'processed'`

const isProcessed = `SELECT 1 FROM courier_ledger WHERE idempotency_key = $1 AND envelope_id = $2 AND status = 'processed'`

// Conclude records how a run of the worker ended that was no success, in the transaction
// of its conclusion. It reports false, and changes nothing, if the row is in a state from
// which that is no step. An event that did not come through the intake has no row, and gets none; one that
// the intake has published without the ledger gets one, unless its idempotency key is known.
func (l *Ledger) Conclude(ctx context.Context, tx sqlstore.Conn, c eventing.Conclusion, now time.Time) (allowed bool, err error) {
	status, expires := courier.StatusProcessed, l.Until(now)
	switch c.State {
	case eventing.StateRetrying:
		status, expires = courier.StatusFailed, time.Time{}
	case eventing.StateDead:
		status = courier.StatusDeadLettered
	}
	event := c.Envelope.Header
	var sent struct {
		IdempotencyKey string `json:"idempotencyKey"`
	}
	if json.Unmarshal(c.Envelope.Payload, &sent) == nil && sent.IdempotencyKey != "" { // as a success has it
		event.IdempotencyKey = sent.IdempotencyKey
	}
	if a, ok := courier.DirectArrival(c.Envelope); ok {
		if _, err := l.insert(ctx, tx, []*intake.Entry{entryOf(&a)}); err != nil {
			return false, fmt.Errorf("enter %s into the ledger: %w", c.Envelope.ID, err)
		}
	}
	var code, message any
	if c.Err != nil {
		code, message = string(eventing.ReasonOf(c.Err)), c.Message()
	}
	allowed, err = l.move(ctx, tx, &event, status, c.Attempts, code, message, l.store.Time(now), l.store.Time(expires))
	if err != nil {
		return false, fmt.Errorf("update %s in the ledger: %w", c.Envelope.ID, err)
	}
	return allowed, nil
}

// move brings a row into another state, if it may; args are those of [conclude] after the status.
func (l *Ledger) move(ctx context.Context, tx sqlstore.Conn, event *eventing.Header, to courier.Status, args ...any) (allowed bool, err error) {
	if !Concludes(courier.StatusProcessing, to) {
		return false, nil
	}
	moved, err := tx.Exec(ctx, conclude, append([]any{event.IdempotencyKey, event.ID, string(to)}, args...)...)
	if err != nil || moved > 0 {
		return moved > 0, err
	}
	rows, err := tx.Query(ctx, isProcessed, event.IdempotencyKey, event.ID)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	processed := rows.Next()
	return !processed, rows.Err()
}
