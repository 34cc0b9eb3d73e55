package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

const selectEnvelopes = `SELECT event_id, envelope_id FROM courier_ledger WHERE event_id IN (`

// Envelopes returns the ids of the envelopes of the events that couriers, or only one
// source, call so: several, where couriers share an id, and none of what the ledger does
// not know.
func (l *Ledger) Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]string, error) {
	envelopes := make(map[string][]string, len(eventIDs))
	for batch := range slices.Chunk(eventIDs, namesBatch) {
		if err := l.envelopes(ctx, batch, source, envelopes); err != nil {
			return nil, fmt.Errorf("look up events in the ledger: %w", err)
		}
	}
	return envelopes, nil
}

func (l *Ledger) envelopes(ctx context.Context, eventIDs []string, source string, into map[string][]string) error {
	args := append(list(eventIDs), source)
	of := "$" + strconv.Itoa(len(args))
	rows, err := l.store.Read.QueryContext(ctx, selectEnvelopes+places(len(eventIDs))+") AND ("+of+" = '' OR source = "+of+")", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, envelope string
		if err := rows.Scan(&id, &envelope); err != nil {
			return err
		}
		into[id] = append(into[id], envelope)
	}
	return rows.Err()
}
