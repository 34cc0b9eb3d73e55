package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Name is what couriers call an event.
type Name struct {
	EventID    string
	Source     string
	ShipmentID string
}

const selectNames = `SELECT envelope_id, event_id, source, shipment_id FROM `

// namesBatch keeps a statement's parameters within what databases take.
const namesBatch = 500

// Names returns what couriers call the events of the given envelopes. Those that did not come through the intake, or that nothing but
// inbox and ledger knows any more, have no name.
func (l *Ledger) Names(ctx context.Context, envelopes []string) (map[string]Name, error) {
	names := make(map[string]Name, len(envelopes))
	for batch := range slices.Chunk(envelopes, namesBatch) {
		if err := l.names(ctx, batch, names); err != nil {
			return nil, fmt.Errorf("look up names in the ledger: %w", err)
		}
	}
	return names, nil
}

func (l *Ledger) names(ctx context.Context, envelopes []string, into map[string]Name) error {
	keys, err := KeysOf(ctx, l.store.Read, envelopes)
	if err != nil || len(keys) == 0 {
		return err
	}
	wanted := make(map[string]bool, len(envelopes))
	for _, envelope := range envelopes {
		wanted[envelope] = true
	}
	return l.called(ctx, func(c Called) {
		if wanted[c.EnvelopeID] { // and not another event's, that came first with that key
			into[c.EnvelopeID] = c.Name
		}
	}, l.selectNames(), l.store.List(keys))
}

func (l *Ledger) selectNames() string {
	return selectNames + `courier_ledger WHERE ` + l.store.In("idempotency_key", "$1")
}

// called calls each for each row of selectNames.
func (l *Ledger) called(ctx context.Context, each func(Called), query string, args ...any) error {
	rows, err := l.store.Read.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Called
		if err := rows.Scan(&c.EnvelopeID, &c.EventID, &c.Source, &c.ShipmentID); err != nil {
			return err
		}
		each(c)
	}
	return rows.Err()
}

// Each part of the outbox has an index of its own. Of an envelope, which may be large, the header is first.
const (
	beginning     = `SELECT substr(payload, 1, 16384) FROM `
	selectEncoded = beginning + `event_outbox WHERE event_id IN ({ids}) AND (status <> 'pending' OR id <> event_id) UNION ALL ` +
		beginning + `event_outbox WHERE id IN ({ids}) AND status = 'pending' AND id = event_id UNION ALL ` +
		beginning + `event_deliveries WHERE event_id IN ({ids}) UNION ALL ` +
		beginning + `dead_letter_events WHERE event_id IN ({ids})`
)

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// KeysOf returns the idempotency keys of at most 500 envelopes, by which the ledger finds its rows: of those that outbox, deliveries or dead
// letters have.
func KeysOf(ctx context.Context, db querier, envelopes []string) (keys []string, err error) {
	rows, err := db.QueryContext(ctx, strings.ReplaceAll(selectEncoded, "{ids}", places(len(envelopes))), list(envelopes)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var encoded sql.RawBytes
		if err := rows.Scan(&encoded); err != nil {
			return nil, err
		}
		if key := keyOf(encoded); key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), rows.Err()
}

// keyOf returns the idempotency key in the header of an envelope of which only the beginning is there.
func keyOf(encoded []byte) string {
	d := json.NewDecoder(bytes.NewReader(encoded))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for {
		field, err := d.Token()
		if err != nil || field == "payload" {
			return ""
		}
		value, err := d.Token()
		if _, nested := value.(json.Delim); err != nil || nested { // no header has that
			return ""
		}
		if key, ok := value.(string); ok && field == "idempotency_key" && !strings.ContainsRune(key, 0) {
			return key
		}
	}
}

// places returns n numbered parameters.
func places(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(all, ", ")
}

func list(texts []string) []any {
	args := make([]any, len(texts))
	for i, text := range texts {
		args[i] = text
	}
	return args
}
