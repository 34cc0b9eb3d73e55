package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// lazyTx is a transaction that begins with its first statement, in the same round trip (see [pgx.Batch.BeginTx]). Until
// then the server knows of none: a handler that waits for others before it writes holds a connection, and nothing else.
type lazyTx struct {
	pgx.Tx // nil until it has begun

	pool     *pgxpool.Pool
	conn     *pgxpool.Conn // nil once it has ended
	last     *pgx.Conn     // the same, or what it was
	since    time.Time     // when it got that
	own      bool          // see ownTx
	batches  bool          // statements can be batched as they are
	rows     *firstRows    // of its first statement
	beginErr error         // why the server, or the way to it, did not let it begin
	defers   bool          // what is appended waits
	waiting  []sqlstore.Statement
	lost     error // why what has waited was not done
}

// begin begins it, unless it has begun, and does what waits, in a round trip of its own.
func (t *lazyTx) begin(ctx context.Context) error {
	switch {
	case t.rows != nil && !t.rows.closed: // pgx would give the connection up
		return errUnread
	case len(t.waiting) > 0:
		return t.flush(ctx, t.all)
	case t.Tx != nil:
		return nil
	}
	err := t.beginAlone(ctx)
	if err != nil && ctx.Err() == nil && t.conn != nil && t.last.IsClosed() { // it was idle for too long, for example
		err = t.beginAlone(ctx)
	}
	if err != nil {
		t.fail(ctx, err)
	}
	return err
}

func (t *lazyTx) beginAlone(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil { // for which pgx would close the connection
		return err
	}
	if t.last.IsClosed() {
		t.conn.Release()
		if t.conn, err = t.pool.Acquire(ctx); err != nil {
			return err
		}
		t.last = t.conn.Conn()
	}
	var options pgx.TxOptions
	if t.own {
		options.BeginQuery = "begin; " + ownTx
	}
	tx, err := t.conn.BeginTx(ctx, options)
	if err == nil {
		t.Tx = tx
	}
	return err
}

// fail is told why it has not begun. That the caller's time is up is not the server's fault.
func (t *lazyTx) fail(ctx context.Context, err error) {
	switch {
	case ctx.Err() == nil:
		t.Tx, t.beginErr = closedTx(), err
	case t.last.IsClosed():
		t.Tx = closedTx()
	default:
		t.Tx = nil // nothing was sent
	}
}

// first begins it with a statement, of which it returns the results, or alone: then they are nil.
func (t *lazyTx) first(ctx context.Context, query string, args []any) (pgx.BatchResults, error) {
	if t.Tx != nil || len(t.waiting) > 0 || alone(args) {
		return nil, t.begin(ctx)
	}
	return t.beginWith(ctx, sqlstore.Statement{Query: query, Args: args})
}

// all runs statements in one round trip, with which it begins, unless it has begun.
func (t *lazyTx) all(ctx context.Context, statements []sqlstore.Statement) (pgx.BatchResults, error) {
	if t.Tx == nil {
		if results, err := t.beginWith(ctx, statements...); results != nil || err != nil {
			return results, err
		}
	}
	return t.Tx.SendBatch(ctx, queue(&pgx.Batch{}, statements)), nil
}

// beginWith begins it with statements, or alone: then the results are nil.
func (t *lazyTx) beginWith(ctx context.Context, statements ...sqlstore.Statement) (pgx.BatchResults, error) {
	if t.batches {
		results, err := t.batch(ctx, statements)
		if t.beginErr == nil {
			return results, err
		}
		t.Tx, t.beginErr = nil, nil // pgx could not build the batch, for example: each is to fail with what is its own
	}
	return nil, t.begin(ctx)
}

// batch sends BEGIN and statements. On an error, the results are closed.
func (t *lazyTx) batch(ctx context.Context, statements []sqlstore.Statement) (pgx.BatchResults, error) {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	if t.own {
		b.Queue(ownTxInBatch)
	}
	results := t.conn.SendBatch(ctx, queue(b, statements))
	if _, err := results.Exec(); err != nil {
		_ = results.Close() // returns the same
		t.fail(ctx, err)
		return nil, err
	}
	t.Tx = results.Tx()
	if t.own {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // returns the same
			return nil, err
		}
	}
	return results, nil
}

func queue(b *pgx.Batch, statements []sqlstore.Statement) *pgx.Batch {
	for _, s := range statements {
		b.Queue(s.Query, s.Args...)
	}
	return b
}

// alone reports whether a statement cannot be part of a batch, to which pgx passes no options but one, and in which
// a text is one statement.
func alone(args []any) bool {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return true
		case pgx.QueryRewriter:
			continue
		}
		break
	}
	return len(args) == 0
}

// Exec implements [pgx.Tx].
func (t *lazyTx) Exec(ctx context.Context, query string, args ...any) (tag pgconn.CommandTag, err error) {
	results, err := t.first(ctx, query, args)
	if err != nil {
		return tag, err
	}
	if results == nil {
		return t.Tx.Exec(ctx, query, args...)
	}
	tag, err = results.Exec()
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag, err
}

// Query implements [pgx.Tx].
func (t *lazyTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	results, err := t.first(ctx, query, args)
	if err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	if results == nil {
		return t.Tx.Query(ctx, query, args...)
	}
	rows, err := results.Query()
	t.rows = &firstRows{Rows: rows, results: results}
	if err != nil {
		t.rows.Close()
	}
	return t.rows, err
}

// QueryRow implements [pgx.Tx].
func (t *lazyTx) QueryRow(ctx context.Context, query string, args ...any) pgx.Row {
	results, err := t.first(ctx, query, args)
	if err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	if results == nil {
		return t.Tx.QueryRow(ctx, query, args...)
	}
	return firstRow{results.QueryRow(), results}
}

// SendBatch implements [pgx.Tx].
func (t *lazyTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.begin(ctx); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom implements [pgx.Tx].
func (t *lazyTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, source)
}

// Prepare implements [pgx.Tx].
func (t *lazyTx) Prepare(ctx context.Context, name, query string) (*pgconn.StatementDescription, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, query)
}

// Begin implements [pgx.Tx]: it makes a savepoint.
func (t *lazyTx) Begin(ctx context.Context) (pgx.Tx, error) {
	t.defers = false // lest it be written within the savepoint, or not, by chance
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.Tx.Begin(ctx)
}

// LargeObjects implements [pgx.Tx].
func (t *lazyTx) LargeObjects() pgx.LargeObjects {
	t.insist()
	if len(t.waiting) > 0 { // rows are open
		return closedTx().LargeObjects()
	}
	return t.Tx.LargeObjects()
}

// Conn implements [pgx.Tx].
func (t *lazyTx) Conn() *pgx.Conn {
	t.insist()
	return t.last
}

const beginTimeout = 10 * time.Second

// insist begins it for those who cannot be told if that fails. Then its connection is closed, lest something be done on it that
// is no part of a transaction.
func (t *lazyTx) insist() {
	t.defers = false // past what is done on the connection
	ctx, cancel := context.WithTimeout(context.Background(), beginTimeout)
	defer cancel()
	if err := t.begin(ctx); err != nil && t.Tx == nil {
		t.Tx = closedTx()
	}
	if t.beginErr != nil {
		_ = t.last.Close(ctx) // there is an error to tell already
	}
}

// Commit implements [pgx.Tx].
func (t *lazyTx) Commit(ctx context.Context) error {
	if len(t.waiting) > 0 || t.lost != nil {
		return t.flushAndCommit(ctx)
	}
	return t.end(ctx, pgx.Tx.Commit)
}

// Rollback implements [pgx.Tx].
func (t *lazyTx) Rollback(ctx context.Context) error {
	t.waiting = nil
	return t.end(ctx, pgx.Tx.Rollback)
}

func (t *lazyTx) end(ctx context.Context, how func(pgx.Tx, context.Context) error) (err error) {
	switch {
	case t.beginErr != nil:
		err = t.beginErr
	case t.Tx == nil:
		t.Tx = closedTx()
	default:
		err = how(t.Tx, ctx)
	}
	t.release()
	return err
}

func (t *lazyTx) release() {
	if t.conn != nil {
		t.conn.Release()
		t.conn = nil
	}
}

// closedTx returns a transaction that has ended.
func closedTx() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}

// busy reports whether a result has not been read to its end.
func (t *lazyTx) busy() bool { return t.conn != nil && t.last.PgConn().IsBusy() }

// firstRows are those of a batch, which ends with them.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

// Next implements [pgx.Rows].
func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Scan implements [pgx.Rows]: if it fails, the rows are closed.
func (r *firstRows) Scan(dest ...any) error { return r.unless(r.Rows.Scan(dest...)) }

// Values implements [pgx.Rows]: as Scan.
func (r *firstRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	return values, r.unless(err)
}

func (r *firstRows) unless(err error) error {
	if err != nil {
		r.Close()
	}
	return err
}

// Close implements [pgx.Rows].
func (r *firstRows) Close() {
	r.Rows.Close()
	r.closed, r.err = true, r.results.Close()
}

// Err implements [pgx.Rows].
func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// firstRow is that of a batch, which ends with it.
type firstRow struct {
	pgx.Row
	results pgx.BatchResults
}

// Scan implements [pgx.Row].
func (r firstRow) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	if closing := r.results.Close(); err == nil {
		err = closing
	}
	return err
}
