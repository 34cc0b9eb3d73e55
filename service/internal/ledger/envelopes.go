package ledger

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// Called is an envelope, and what a courier calls its event.
type Called struct {
	EnvelopeID string
	Name
}

const selectEnvelopes = `SELECT envelope_id, event_id, source, shipment_id FROM courier_ledger WHERE event_id IN (`

// Envelopes returns the envelopes of the events that couriers, or only one
// source, call so: several, where couriers share an id, and none of what the ledger does
// not know.
func (l *Ledger) Envelopes(ctx context.Context, eventIDs []string, source string) (map[string][]Called, error) {
	envelopes := make(map[string][]Called, len(eventIDs))
	for batch := range slices.Chunk(eventIDs, namesBatch) {
		if err := l.envelopes(ctx, batch, source, envelopes); err != nil {
			return nil, fmt.Errorf("look up events in the ledger: %w", err)
		}
	}
	return envelopes, nil
}

func (l *Ledger) envelopes(ctx context.Context, eventIDs []string, source string, into map[string][]Called) error {
	args := append(list(eventIDs), source)
	of := "$" + strconv.Itoa(len(args))
	rows, err := l.store.Read.QueryContext(ctx, selectEnvelopes+places(len(eventIDs))+") AND ("+of+" = '' OR source = "+of+")", args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Called
		if err := rows.Scan(&c.EnvelopeID, &c.EventID, &c.Source, &c.ShipmentID); err != nil {
			return err
		}
		into[c.EventID] = append(into[c.EventID], c)
	}
	return rows.Err()
}
