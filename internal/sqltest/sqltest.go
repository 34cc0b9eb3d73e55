// Package sqltest lets the conformance suite work with SQL stores.
package sqltest

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/eventing/eventingtest"
)

// EffectTable makes the append-only table of effects. It has no uniqueness, so a
// second effect of one event shows.
const EffectTable = `CREATE TABLE effects (consumer text NOT NULL, event_id text NOT NULL)`

// InsertEffect is what a handler of the suite does.
const InsertEffect = `INSERT INTO effects (consumer, event_id) VALUES ($1, $2)`

// Replay is the documented statement, word for word, but for the id.
const Replay = `INSERT INTO event_outbox (id, event_id, event_type, payload, status, attempts)
SELECT event_id || '-replay', event_id, event_type, payload, 'pending', 0
FROM dead_letter_events
WHERE event_id = $1;`

// Database is a store of the suite, with the statements of a person.
type Database[Tx any] struct {
	eventingtest.Store[Tx]
	DB *sql.DB
	// InsertIn runs InsertEffect in a transaction of the store.
	InsertIn func(ctx context.Context, tx Tx, consumer, eventID string) error
	// Order of rows as they were inserted.
	Order string
}

// Effect implements [eventingtest.Database].
func (d Database[Tx]) Effect(ctx context.Context, tx Tx, consumer, eventID string) error {
	return d.InsertIn(ctx, tx, consumer, eventID)
}

// Effects implements [eventingtest.Database].
func (d Database[Tx]) Effects(ctx context.Context) (effects []eventingtest.Effect, err error) {
	err = d.query(ctx, `SELECT consumer, event_id FROM effects ORDER BY `+d.Order, func(rows *sql.Rows) error {
		effects = append(effects, eventingtest.Effect{})
		return rows.Scan(&effects[len(effects)-1].Consumer, &effects[len(effects)-1].EventID)
	})
	return effects, err
}

// InsertByHand implements [eventingtest.Database].
func (d Database[Tx]) InsertByHand(ctx context.Context, id, eventID, eventType string, payload []byte) error {
	_, err := d.DB.ExecContext(ctx, `INSERT INTO event_outbox (id, event_id, event_type, payload, status, attempts) VALUES ($1, $2, $3, $4, 'pending', 0)`,
		id, eventID, eventType, string(payload))
	return err
}

// ReplayBySQL implements [eventingtest.Database].
func (d Database[Tx]) ReplayBySQL(ctx context.Context, eventID string) (int, error) {
	r, err := d.DB.ExecContext(ctx, Replay, eventID)
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	return int(n), err
}

// OutboxStatus implements [eventingtest.Database].
func (d Database[Tx]) OutboxStatus(ctx context.Context, eventID string) ([]string, error) {
	return d.texts(ctx, `SELECT status FROM event_outbox WHERE event_id = $1 ORDER BY seq`, eventID)
}

// RoutingVersions implements [eventingtest.Database].
func (d Database[Tx]) RoutingVersions(ctx context.Context, eventID string) ([]string, error) {
	return d.texts(ctx, `SELECT coalesce(routing_version, '') FROM event_outbox WHERE event_id = $1 ORDER BY seq`, eventID)
}

// texts returns the only column of a query.
func (d Database[Tx]) texts(ctx context.Context, query string, args ...any) (texts []string, err error) {
	err = d.query(ctx, query, func(rows *sql.Rows) error {
		texts = append(texts, "")
		return rows.Scan(&texts[len(texts)-1])
	}, args...)
	return texts, err
}

func (d Database[Tx]) query(ctx context.Context, query string, scan func(*sql.Rows) error, args ...any) error {
	rows, err := d.DB.QueryContext(ctx, query, args...)
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
