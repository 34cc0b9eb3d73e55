package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

const (
	// maxWaiting is how many statements wait before they are done, if they can be.
	maxWaiting = 16
	// longIdle is when a connection on which nothing has begun may have been closed by others.
	longIdle = 100 * time.Millisecond
)

// deferredConn is the Conn of a transaction for statements whose results nobody needs: they wait for the next that
// somebody does, or for COMMIT, and so need no round trip. What is wrong with one is told then.
type deferredConn struct {
	pgConn
	tx *lazyTx
}

// Exec reports that it has changed no rows. The statement counts also if ctx has ended, or if rows of another are open.
func (c deferredConn) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	t := c.tx
	if len(t.waiting) >= maxWaiting {
		if err := t.begin(ctx); err != nil && len(t.waiting) == 0 { // else it could not be tried
			return 0, c.typed(err)
		}
	}
	t.waiting = append(t.waiting, sqlstore.Statement{Query: query, Args: args})
	return 0, nil
}

// deferring reports whether the caller's statements may wait.
func (t *lazyTx) deferring() bool { return t.defers && t.usable() }

// usable reports whether statements may wait at all: those of a transaction that has ended, or could not begin, are to fail.
func (t *lazyTx) usable() bool { return t.conn != nil && t.beginErr == nil && t.lost == nil }

// flush does what waits, with what sends it. If it fails, the transaction can only be rolled back, unless it could not be
// tried: then all waits on.
func (t *lazyTx) flush(ctx context.Context, send func(context.Context, []sqlstore.Statement) (pgx.BatchResults, error)) error {
	if t.busy() {
		return errUnread
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	waiting := t.waiting
	t.waiting, t.lost = nil, errFlush // lest a panic leave something out
	results, err := send(ctx, waiting)
	for i := 0; i < len(waiting) && err == nil; i++ {
		if _, err = results.Exec(); err != nil {
			err = failed(waiting[i], err)
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

// errFlush is of a transaction whose statements panicked when they were encoded.
var errFlush = errors.New("deferred statements could not be sent")

// failed returns what the failure of a statement that has waited means.
func failed(s sqlstore.Statement, err error) error {
	switch {
	case s.Wrong == nil:
		return fmt.Errorf("deferred statement: %w", err)
	case sqlState(err) == s.State:
		return s.Wrong()
	}
	return err
}

// flushAndCommit does what waits, and commits, in one round trip. It is not tried on another connection: if this one breaks, nobody
// knows whether it has happened. So a connection that may have been closed meanwhile begins by itself.
func (t *lazyTx) flushAndCommit(ctx context.Context) error {
	if t.Tx == nil && t.lost == nil && time.Since(t.since) > longIdle && t.begin(ctx) == nil {
		return t.end(ctx, pgx.Tx.Commit)
	}
	err := t.lost
	if err == nil {
		err = t.flush(ctx, t.commitWith)
	}
	if err != nil && t.Tx != nil && t.last.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlstore.RollbackTimeout)
		defer cancel()
		_ = t.Tx.Rollback(ctx) // there is an error to tell already
	}
	t.Tx, t.waiting = closedTx(), nil
	t.release()
	return err
}

func (t *lazyTx) commitWith(ctx context.Context, statements []sqlstore.Statement) (pgx.BatchResults, error) {
	b := queue(&pgx.Batch{}, statements)
	if t.Tx == nil {
		return t.conn.SendBatch(ctx, b), nil // a batch by itself is a transaction
	}
	b.Queue("commit")
	return t.Tx.SendBatch(ctx, b), nil
}
