package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

const (
	channel = "waybill_outbox"
	notify  = `SELECT pg_notify('` + channel + `', $1)`
)

// debounce is how close together the notifications of a process may be: each one makes
// commits wait for each other.
const debounce = 5 * time.Millisecond

// bell tells the dispatchers of other processes that there is something to send.
type bell struct {
	conn sqlstore.Conn // outside of transactions

	mu    sync.Mutex
	rung  time.Time
	later bool // it will ring again, for those who came too soon after another
}

func newBell(conn sqlstore.Conn) *bell { return &bell{conn: conn} }

// ring notifies when the transaction commits or, if it rang just now, once more when
// that is a while ago. A transaction that commits after that is found by polling.
func (b *bell) ring(ctx context.Context, tx sqlstore.Conn) error {
	b.mu.Lock()
	since := time.Since(b.rung)
	quiet := since >= debounce
	switch {
	case quiet:
		b.rung = time.Now()
	case !b.later:
		b.later = true
		time.AfterFunc(debounce-since, b.again)
	}
	b.mu.Unlock()
	if !quiet {
		return nil
	}
	_, err := tx.Exec(ctx, notify, "")
	return err
}

// again rings outside of a transaction. If that fails, dispatchers poll.
func (b *bell) again() {
	b.mu.Lock()
	b.later, b.rung = false, time.Now()
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = b.conn.Exec(ctx, notify, "")
}

// probeTimeout is how long the first notification may take.
const probeTimeout = 2 * time.Second

var errNotNotified = errors.New("LISTEN was accepted, but a notification did not arrive: " +
	"a pooler of connections in transaction mode does not pass them on")

// listen wakes at each notification until ctx ends. It closes the connection.
func listen(ctx context.Context, own *pgx.Conn, others sqlstore.Conn, listening, wake func()) error {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = own.Close(ctx) // there is nothing left to say
	}()
	if _, err := own.Exec(ctx, `LISTEN `+channel); err != nil {
		return typed(err)
	}
	if err := probe(ctx, own, others); err != nil {
		return err
	}
	listening()
	for {
		if _, err := await(ctx, own); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return typed(err)
		}
		wake()
	}
}

var errTaken = fmt.Errorf("the connections have an OnNotification of their own, which takes the notifications: %w", errors.ErrUnsupported)

// await waits for a notification, and returns what it says.
func await(ctx context.Context, own *pgx.Conn) (string, error) {
	n, err := own.WaitForNotification(ctx)
	switch {
	case err != nil:
		return "", err
	case n == nil:
		return "", errTaken
	}
	return n.Payload, nil
}

// probe sends a notification from another connection and waits for it.
func probe(ctx context.Context, own *pgx.Conn, others sqlstore.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	token := eventing.NewID()
	if _, err := others.Exec(ctx, notify, token); err != nil {
		return err
	}
	for {
		payload, err := await(ctx, own)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return errNotNotified
		case err != nil:
			return typed(err)
		case payload == token:
			return nil
		}
	}
}

// connectLike opens a connection beside those of a database, with their settings.
func connectLike(ctx context.Context, db *sql.DB) (*pgx.Conn, error) {
	pooled, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var config *pgx.ConnConfig
	err = pooled.Raw(func(c any) error {
		conn, ok := c.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the driver is not pgx but %T: %w", c, errors.ErrUnsupported)
		}
		config = conn.Conn().Config()
		config.OnNotification = nil // it is bound to that connection
		return nil
	})
	if err = errors.Join(err, pooled.Close()); err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}
