package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// maxWaiting bounds the statements that wait.
const maxWaiting = 16

// deferredConn is the Conn of a transaction for statements whose results nobody needs: they wait for the next that
// somebody does, or for COMMIT, and so need no round trip. What is wrong with one is told then.
type deferredConn struct {
	pgConn
	tx *lazyTx
}

// Exec reports that it has changed no rows.
func (c deferredConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	t := c.tx
	if !t.defers || t.conn == nil || t.beginErr != nil || t.lost != nil {
		return c.pgConn.Exec(ctx, query, args...)
	}
	if len(t.waiting) == maxWaiting {
		if err := t.begin(ctx); err != nil {
			return 0, c.typed(err)
		}
	}
	t.waiting = append(t.waiting, sqlstore.Statement{Query: query, Args: args})
	return 0, nil
}

// flush does what waits, in a round trip of its own. If it fails, the transaction can only be rolled back, unless it could not be
// tried: then all waits on.
func (t *lazyTx) flush(ctx context.Context) error {
	return t.flushBy(ctx, func(statements []sqlstore.Statement) (pgx.BatchResults, error) { return t.all(ctx, statements) })
}

func (t *lazyTx) flushBy(ctx context.Context, send func([]sqlstore.Statement) (pgx.BatchResults, error)) error {
	if t.busy() {
		return errUnread
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	waiting := t.waiting
	t.waiting = nil
	results, err := send(waiting)
	for i := 0; i < len(waiting) && err == nil; i++ {
		if _, err = results.Exec(); err != nil {
			err = fmt.Errorf("append: %w", err)
		}
	}
	if results != nil {
		if closing := results.Close(); err == nil { // of COMMIT
			err = closing
		}
	}
	t.lost = typed(err)
	return t.lost
}

const rollbackTimeout = 5 * time.Second

// flushAndCommit does what waits, and commits, in one round trip. It is not tried on another connection: if this one breaks, nobody
// knows whether it has happened.
func (t *lazyTx) flushAndCommit(ctx context.Context) error {
	err := t.lost
	if err == nil {
		err = t.flushBy(ctx, func(statements []sqlstore.Statement) (pgx.BatchResults, error) {
			b := queue(&pgx.Batch{}, statements)
			if t.Tx == nil {
				return t.conn.SendBatch(ctx, b), nil // a batch by itself is a transaction
			}
			b.Queue("commit")
			return t.Tx.SendBatch(ctx, b), nil
		})
	}
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = t.Rollback(ctx) // there is an error to tell already
		return err
	}
	t.Tx = closedTx()
	t.release()
	return nil
}
