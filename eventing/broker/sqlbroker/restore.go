package sqlbroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Renumber makes topics readable again that were restored into another server, where
// transactions have other numbers: what was there and what its groups have read stays as
// it was, and all of it comes before what is published from now on. Call it before
// anything is published, while the server has this dump and no more; until then,
// subscribers that can tell refuse to read. It rewrites the topic's tables, each topic in
// one transaction.
func Renumber(ctx context.Context, db *sql.DB, topics ...string) error {
	for _, topic := range topics {
		if err := errors.Join(checkTopic(topic), checkDB(db)); err != nil {
			return err
		}
		if err := renumber(ctx, db, topic); err != nil {
			return fmt.Errorf("sqlbroker: renumber topic %q: %w", topic, err)
		}
	}
	return nil
}

// first is a number that no server gives to a transaction of a client.
const first = "'3'::xid8"

func renumber(ctx context.Context, db *sql.DB, topic string) error {
	messages, offsets := messagesTable(topic), offsetsTable(topic)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range []string{
		`LOCK TABLE ` + messages + `, ` + offsets,
		`UPDATE ` + offsets + ` g SET last_processed_transaction_id = ` + first + `, offset_acked =
			(SELECT count(*) FROM ` + messages + ` m WHERE (m.transaction_id, m."offset") <= (g.last_processed_transaction_id, coalesce(g.offset_acked, 0)))`,
		// Twice, as no number may be there twice while one statement is at it.
		`UPDATE ` + messages + ` m SET transaction_id = '2'::xid8, "offset" = r.n
			FROM (SELECT ctid AS id, row_number() OVER (ORDER BY transaction_id, "offset") AS n FROM ` + messages + `) r WHERE m.ctid = r.id`,
		`UPDATE ` + messages + ` SET transaction_id = ` + first,
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}
