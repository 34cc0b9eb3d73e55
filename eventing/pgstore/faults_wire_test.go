package pgstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// faulty makes one of the statements, or batches of them, fail that are run with its context. They are
// counted where pgx begins one, and struck on the wire, below both drivers, so that
// BEGIN, COMMIT and ROLLBACK count, and what pgx does beside them (preparing, pinging)
// does not.
type faulty struct {
	admin *pgxpool.Pool // ends connections

	mu    sync.Mutex
	kind  kind
	nth   int // 0: none
	count int
	hit   *hit
	texts map[string]bool // of the statements that were counted
	// states are what any statement has failed with.
	states []string
}

// hit is the statement that was made to fail.
type hit struct {
	sql    string
	batch  bool
	begins bool // a transaction
	inTx   bool // it is in one, or begins it
}

// kind is a kind of fault. strike prepares it when the statement begins.
type kind struct {
	name   string
	strike func(f *faulty, c *pgx.Conn, at hit)
	typed  error // what the store may call it
	after  bool  // it happens when the statement has been executed
	always bool  // it happens at each execution of the statement
	beside bool  // the connection breaks at the rollback
}

type faultyKey struct{}

// context returns a context in which statements are counted.
func (f *faulty) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, faultyKey{}, f)
}

// arm has the nth statement from now on fail; 0: none.
func (f *faulty) arm(k kind, nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.nth, f.count, f.hit, f.texts, f.states = k, nth, 0, nil, map[string]bool{}, nil
}

// disarm returns the statement that has failed, and how many there were.
func (f *faulty) disarm() (*hit, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nth = 0
	return f.hit, f.count
}

// seen returns the texts of the statements since arm.
func (f *faulty) seen() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.texts
}

// TraceQueryStart implements [pgx.QueryTracer].
func (f *faulty) TraceQueryStart(ctx context.Context, c *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	f.begin(ctx, c, hit{sql: data.SQL})
	return ctx
}

// TraceBatchStart implements [pgx.BatchTracer]. A batch counts as the last of its statements: what is struck, all
// of them are.
func (f *faulty) TraceBatchStart(ctx context.Context, c *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	queued := data.Batch.QueuedQueries
	f.begin(ctx, c, hit{sql: queued[len(queued)-1].SQL, batch: true, begins: queued[0].SQL == "begin"})
	return ctx
}

func (f *faulty) begin(ctx context.Context, c *pgx.Conn, now hit) {
	if ctx.Value(faultyKey{}) != f {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	f.texts[now.sql] = true
	now.inTx = now.begins || c.PgConn().TxStatus() != 'I'
	switch {
	case f.nth == 0:
	case f.hit == nil && f.count == f.nth:
		f.hit = &now
		f.kind.strike(f, c, now)
	case f.hit != nil && f.kind.always && now.sql == f.hit.sql:
		f.kind.strike(f, c, now)
	case f.hit != nil && f.kind.beside && now.sql == "rollback":
		cut(f, c, now)
	}
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (f *faulty) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	f.end(data.Err)
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (f *faulty) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements [pgx.BatchTracer].
func (f *faulty) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	f.end(data.Err)
}

func (f *faulty) end(err error) {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.states = append(f.states, state.SQLState())
	}
}

// met returns the SQLSTATEs that statements have failed with since arm.
func (f *faulty) met() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.states
}

// raise has the server fail the statement. A COMMIT by itself fails at a deferred constraint, as
// it does in life: the server has ended the transaction then.
func raise(code string) func(*faulty, *pgx.Conn, hit) {
	return func(_ *faulty, c *pgx.Conn, at hit) {
		instead := fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = '%s'; END $$`, code)
		if at.sql == "commit" && !at.batch {
			instead = fmt.Sprintf(`INSERT INTO kept.refused VALUES ('%s'); commit`, code)
		}
		w := wireOf(c)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.instead, w.begins = instead, at.begins
	}
}

// terminate has the server end the connection before it sees the statement.
func terminate(f *faulty, c *pgx.Conn, _ hit) {
	w := wireOf(c)
	f.terminate(c)
	farewell, _ := io.ReadAll(w.Conn) // until the server has closed it, one way or another
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unread = farewell
}

// terminateAfter has it end the connection when the statement has been executed: nobody
// hears of the result.
func terminateAfter(f *faulty, c *pgx.Conn, _ hit) { wireOf(c).afterwards(func() { f.terminate(c) }) }

// cut breaks the connection without a word.
func cut(_ *faulty, c *pgx.Conn, _ hit) { _ = wireOf(c).Close() }

func cutAfter(_ *faulty, c *pgx.Conn, _ hit) {
	w := wireOf(c)
	w.afterwards(func() { _ = w.Close() })
}

func (f *faulty) terminate(c *pgx.Conn) {
	_, _ = f.admin.Exec(context.Background(), `SELECT pg_terminate_backend($1)`, int64(c.PgConn().PID())) // the test would see
}

// wire is a connection to the server.
type wire struct {
	net.Conn

	mu      sync.Mutex
	instead string // of the next statement, or of what comes after its beginning
	begins  bool
	after   func() // when the next statement has been executed
	due     func() // when the answer that is on its way has come
	unread  []byte
}

func wireOf(c *pgx.Conn) *wire {
	w, _ := c.PgConn().Conn().(*wire) // there is no other
	return w
}

// over makes a dialer's connections wires.
func over(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: c}, nil
	}
}

func (w *wire) afterwards(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.after = f
}

// Write passes messages on. pgx writes all of a statement's at once.
func (w *wire) Write(b []byte) (int, error) {
	if !executes(b) {
		return w.Conn.Write(b)
	}
	w.mu.Lock()
	instead, begins := w.instead, w.begins
	w.due, w.after, w.instead = w.after, nil, ""
	w.mu.Unlock()
	if instead == "" {
		return w.Conn.Write(b)
	}
	var other []byte
	if begins {
		other = b[:executed(b):executed(b)]
	}
	other, err := (&pgproto3.Query{String: instead}).Encode(other)
	if err == nil {
		_, err = w.Conn.Write(other)
	}
	return len(b), err
}

// executes reports whether messages have a statement executed, by either protocol.
func executes(b []byte) bool { return executed(b) > 0 }

// executed returns where the first message ends that has a statement executed; 0: there is none.
func executed(b []byte) int {
	for at := 0; len(b)-at >= messageHeader; {
		n := 1 + int(binary.BigEndian.Uint32(b[at+1:]))
		if n > len(b)-at {
			return 0
		}
		if b[at] == 'E' || b[at] == 'Q' {
			return at + n
		}
		at += n
	}
	return 0
}

const messageHeader = 5 // type and length

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	w.mu.Lock()
	due, unread := w.due, w.unread
	w.due = nil
	if len(unread) > 0 {
		n := copy(b, unread)
		w.unread = unread[n:]
		w.mu.Unlock()
		return n, nil
	}
	w.mu.Unlock()
	if due != nil {
		if err := swallow(w.Conn); err != nil {
			return 0, err
		}
		due()
	}
	return w.Conn.Read(b)
}

// swallow reads the answer to a statement.
func swallow(r io.Reader) error {
	header := make([]byte, messageHeader)
	for header[0] != 'Z' { // ready for query
		if _, err := io.ReadFull(r, header); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(header[1:]))-4); err != nil {
			return err
		}
	}
	return nil
}
