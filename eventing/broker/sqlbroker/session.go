package sqlbroker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// session is the connection that all subscriptions of a subscriber share. It holds the
// advisory locks that tell which groups' topics are this subscriber's, so that these
// last exactly as long as it does. No transaction is ever open between two calls:
// neither a handler's time nor its need for connections concerns the server.
type session struct {
	turn chan struct{} // held to use the rest
	conn *sql.Conn     // nil while there is none
}

// errDown is returned while there is no connection, and when it breaks; those who wait
// are woken when there is one.
var errDown = errors.New("sqlbroker: not connected")

// do has f use the connection. If it breaks, all subscriptions have to wait for a new one.
// ctx does not end f: that would break the connection of all.
func (s *Subscriber) do(ctx context.Context, f func(ctx context.Context, c *pgx.Conn) error) error {
	select {
	case s.session.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.session.turn }()
	if s.session.conn == nil {
		return errDown
	}
	ctx, cancel := context.WithTimeout(s.life, callTimeout)
	defer cancel()
	broken := false
	err := s.session.conn.Raw(func(raw any) error {
		c := raw.(*stdlib.Conn).Conn() //nolint:forcetypeassert // checkDB has seen the driver
		err := f(ctx, c)
		broken = c.IsClosed() || sqlState(err) == readOnly
		return err
	})
	if broken {
		s.disconnect()
		if s.life.Err() == nil {
			s.cfg.Logger.Warn("sqlbroker: the connection is lost; will make another", "error", err)
		}
		return fmt.Errorf("%w: %w", errDown, err)
	}
	return err
}

// readOnly is what a server says that has become a standby.
const readOnly = "25006"

// attend keeps the connection, and does on it what is for all subscriptions, until the
// last one has ended.
func (s *Subscriber) attend() {
	defer s.disconnectAtEnd()
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	for s.life.Err() == nil {
		start := time.Now()
		err := s.connect()
		if err == nil {
			err = errors.Join(s.takeLocks(), s.poll())
		}
		wait := min(max(s.cfg.PollInterval, 9*time.Since(start)), s.cfg.TakeOverAfter/5)
		switch {
		case err == nil:
			pause.Reset()
		case s.life.Err() == nil:
			wait = pause.NextBackOff()
			if !errors.Is(err, errDown) { // that is in the log
				s.cfg.Logger.Warn("sqlbroker: the server does not answer as it should; will try again", "error", err, "after", wait)
			}
		}
		select {
		case <-time.After(wait):
		case <-s.life.Done():
		case <-s.nudges(err):
		}
	}
}

// nudges returns what to listen to for those who need the connection's attention: there
// is no hurry when it fails.
func (s *Subscriber) nudges(err error) <-chan struct{} {
	if err != nil {
		return nil
	}
	return s.nudged
}

func (s *Subscriber) nudge() {
	select {
	case s.nudged <- struct{}{}:
	default:
	}
}

// sessionSQL sets what the session needs, as far as this version of Postgres has it.
//   - The server ends a session whose client is silent, and with it the locks.
//   - An ack that a crash of the server takes is one more delivery, no loss: it need not
//     wait for the disk. What is deleted is deleted after it.
//   - A position in the index is read from by index, whatever the statistics of a table
//     say that was empty a moment ago; and a plan is made once.
const sessionSQL = `SELECT set_config(name, value, false) FROM pg_settings JOIN (VALUES
	('idle_session_timeout', $1), ('tcp_keepalives_idle', $2), ('tcp_keepalives_interval', '1'), ('tcp_keepalives_count', '5'),
	('synchronous_commit', 'off'), ('enable_seqscan', 'off'), ('enable_bitmapscan', 'off'), ('enable_sort', 'off'),
	('plan_cache_mode', 'force_generic_plan'), ('jit', 'off'), ('lock_timeout', '2s'), ('default_transaction_isolation', 'read committed')
) AS wanted (name, value) USING (name)`

// connect makes a connection if there is none.
func (s *Subscriber) connect() error {
	s.session.turn <- struct{}{}
	defer func() { <-s.session.turn }()
	if s.session.conn != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.life, callTimeout)
	defer cancel()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("get one of the database's connections, which a subscriber keeps (raise MaxOpenConns if all are taken): %w", err)
	}
	s.session.conn = conn
	idle := s.cfg.TakeOverAfter
	if _, err := conn.ExecContext(ctx, sessionSQL, strconv.FormatInt(idle.Milliseconds(), 10), strconv.Itoa(max(int(idle.Seconds())-5, 1))); err != nil {
		s.disconnect()
		return fmt.Errorf("prepare the session: %w", err)
	}
	return nil
}

// disconnect ends the session, and so gives up all locks. Who calls it has the turn.
func (s *Subscriber) disconnect() {
	// Not into the pool: it has locks and settings.
	_ = s.session.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.session.conn.Close()
	s.session.conn = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.holders)
	for t := range s.all {
		t.live = false
	}
}

func (s *Subscriber) disconnectAtEnd() {
	s.session.turn <- struct{}{}
	defer func() { <-s.session.turn }()
	if s.session.conn != nil {
		s.disconnect()
	}
}

// takeLocks makes those subscriptions live that want to be and can. It has the turn all
// the time: none can be released in between, and leave its lock behind.
func (s *Subscriber) takeLocks() error {
	if !s.wanting() {
		return nil
	}
	return s.do(s.life, func(ctx context.Context, c *pgx.Conn) error {
		candidates := map[int64]*subscription{}
		s.mu.Lock()
		for t := range s.all {
			switch {
			case !t.wants || t.live:
			case t.leased:
				t.golive()
			case s.holders[t.key] == nil:
				candidates[t.key] = t
			}
		}
		s.mu.Unlock()
		if len(candidates) == 0 {
			return nil
		}
		rows, err := c.Query(ctx, "SELECT key FROM unnest($1::bigint[]) AS key WHERE pg_try_advisory_lock(key)",
			slices.Collect(maps.Keys(candidates)))
		if err != nil {
			return err
		}
		locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			_ = c.Close(ctx) // some may be locked: the server unlocks them with the session
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, key := range locked {
			s.holders[key] = candidates[key]
			candidates[key].golive()
		}
		return nil
	})
}

// wanting reports whether a subscription could be made live.
func (s *Subscriber) wanting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.all {
		if t.wants && !t.live && (t.leased || s.holders[t.key] == nil) {
			return true
		}
	}
	return false
}

// release has a subscription give up what makes it live.
func (s *Subscriber) release(t *subscription) {
	s.mu.Lock()
	t.wants = false
	s.mu.Unlock()
	_ = s.do(s.life, func(ctx context.Context, c *pgx.Conn) error { // else the session is over, and the lock with it
		s.mu.Lock()
		held := s.holders[t.key] == t
		t.live = false
		if held {
			delete(s.holders, t.key)
		}
		s.mu.Unlock()
		if !held {
			return nil
		}
		_, err := c.Exec(ctx, "SELECT pg_advisory_unlock($1)", t.key)
		return err
	})
	s.nudge()
}

// poll wakes the subscriptions that wait for messages and have some, in one round trip.
func (s *Subscriber) poll() error {
	batch := new(pgx.Batch)
	var polled []*subscription
	s.mu.Lock()
	for t := range s.all {
		if t.live && t.drained {
			batch.Queue("SELECT EXISTS (SELECT FROM "+messagesTable(t.topic)+newer+")", t.readTo.tx, t.readTo.offset)
			polled = append(polled, t)
		}
	}
	s.mu.Unlock()
	if len(polled) == 0 { // the server is to hear from us
		batch.Queue("SELECT true")
	}
	err := s.do(s.life, func(ctx context.Context, c *pgx.Conn) error {
		results := c.SendBatch(ctx, batch)
		defer results.Close()
		for _, t := range polled {
			var some bool
			if err := results.QueryRow().Scan(&some); err != nil {
				return err
			}
			if some {
				s.arouse(t)
			}
		}
		return results.Close()
	})
	if sqlState(err) == "" {
		return err
	}
	// One topic's table is not as it should be, and its error that of all: each has to see
	// for itself.
	for _, t := range polled {
		s.arouse(t)
	}
	return nil
}

// arouse has a subscription read.
func (s *Subscriber) arouse(t *subscription) {
	s.mu.Lock()
	t.drained = false
	s.mu.Unlock()
	t.wake()
}
