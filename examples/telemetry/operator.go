package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// What an operator does: with a shell of the database and nothing of this program.

// setTariff is how tariffs get in, right ones and wrong ones.
const setTariff = `INSERT INTO tariffs (tenant_id, station_id, cents_per_kwh) VALUES ($1, $2, $3)
ON CONFLICT (tenant_id, station_id) DO UPDATE SET cents_per_kwh = excluded.cents_per_kwh`

// replaySQL sends a dead letter again to the consumer that it died at, word for word
// as documented.
const replaySQL = `INSERT INTO event_outbox (id, event_id, event_type, payload, status, attempts)
SELECT event_id || '-replay', event_id, event_type, payload, 'pending', 0
FROM dead_letter_events
WHERE event_id = '...';`

const openDeadLetters = `SELECT event_id FROM dead_letter_consumers WHERE status <> 'closed' ORDER BY created_at, event_id`

// replayOne is the statement for the event $1.
var replayOne = strings.Replace(replaySQL, "'...'", "$1", 1)

// replay runs the statement for each of the events.
func replay(ctx context.Context, s eventStore, eventIDs []string) error {
	return s.InTx(ctx, func(tx *sql.Tx) error {
		for _, id := range eventIDs {
			if _, err := tx.ExecContext(ctx, replayOne, id); err != nil {
				return fmt.Errorf("replay %s: %w", id, err)
			}
		}
		return nil
	})
}

// shown is a statement as the operator would type it.
func shown(statement string, values ...any) string {
	for i, v := range values {
		text := fmt.Sprint(v)
		if _, ok := v.(string); ok {
			text = "'" + text + "'"
		}
		statement = strings.Replace(statement, fmt.Sprintf("$%d", i+1), text, 1)
	}
	return statement
}
