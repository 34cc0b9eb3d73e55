package sqlbroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrClosed is returned by calls on a closed publisher.
var ErrClosed = errors.New("sqlbroker: the publisher is closed: make a new one and publish again")

const (
	defaultInsertMessages = 1_000
	maxInsertMessages     = 100_000
	defaultInsertBytes    = 4 << 20
	maxInsertBytes        = 256 << 20 // Postgres takes no message of its protocol over 1 GiB
)

// PublisherConfig configures a [Publisher]. The zero value is good.
type PublisherConfig struct {
	// InsertMessages is how many messages a statement inserts at most. Default: 1,000. At
	// most 100,000.
	InsertMessages int
	// InsertBytes is how large the payloads and metadata of a statement are at most, in
	// bytes; a message that is larger goes alone. Default: 4 MiB. At most 256 MiB.
	InsertBytes int
}

func (c PublisherConfig) withDefaults() (PublisherConfig, error) {
	if c.InsertMessages == 0 {
		c.InsertMessages = defaultInsertMessages
	}
	if c.InsertBytes == 0 {
		c.InsertBytes = defaultInsertBytes
	}
	switch {
	case c.InsertMessages < 0 || c.InsertMessages > maxInsertMessages:
		return c, fmt.Errorf("sqlbroker: InsertMessages is %d: set 1 to %d", c.InsertMessages, maxInsertMessages)
	case c.InsertBytes < 0 || c.InsertBytes > maxInsertBytes:
		return c, fmt.Errorf("sqlbroker: InsertBytes is %d: set 1 to %d", c.InsertBytes, maxInsertBytes)
	}
	return c, nil
}

// Publisher publishes to tables. Its methods may be called from several goroutines.
type Publisher struct {
	db     *sql.DB
	cfg    PublisherConfig
	closed atomic.Bool
	topics sync.Map // name → tables: those that have been seen
}

var _ message.Publisher = (*Publisher)(nil)

// NewPublisher returns a publisher that uses the database, which stays the caller's to
// close. It does not connect. It refuses a database of another driver than pgx's.
func NewPublisher(db *sql.DB, cfg PublisherConfig) (*Publisher, error) {
	if err := checkDB(db); err != nil {
		return nil, err
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Publisher{db: db, cfg: cfg}, nil
}

// Publish adds the messages to the topic, in order, in a transaction of its own: all of
// them, once it returns nil, or none. If it fails, the error says that none are added, or
// that this is not known, as when the connection broke during the commit. If it is not one
// of the messages, but of the connection or the server's state, it has a method Temporary,
// which returns true. Publish makes the topic's tables if there are none.
//
// The first message's context is that of the call, its end included. After Close, Publish
// returns [ErrClosed].
func (p *Publisher) Publish(topic string, msgs ...*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(msgs) == 0 {
		return nil
	}
	if msgs[0] == nil {
		return fmt.Errorf("sqlbroker: the first of %d messages is nil: publish without it", len(msgs))
	}
	return p.publish(msgs[0].Context(), []batch{{topic, msgs}})
}

// PublishBatch adds msgs[i] to topics[i], those of a topic in order, all in one
// transaction, and else as Publish does.
func (p *Publisher) PublishBatch(ctx context.Context, topics []string, msgs []*message.Message) error {
	if p.closed.Load() {
		return ErrClosed
	}
	if len(topics) != len(msgs) {
		return fmt.Errorf("sqlbroker: %d topics for %d messages: give each message its topic", len(topics), len(msgs))
	}
	var batches []batch
	known := map[string]int{}
	for i, topic := range topics {
		at, ok := known[topic]
		if !ok {
			at = len(batches)
			known[topic] = at
			batches = append(batches, batch{topic: topic})
		}
		batches[at].msgs = append(batches[at].msgs, msgs[i])
	}
	if len(batches) == 0 {
		return nil
	}
	return p.publish(ctx, batches)
}

// batch is what goes to one topic.
type batch struct {
	topic string
	msgs  []*message.Message
}

func (p *Publisher) publish(ctx context.Context, batches []batch) error {
	statements, n, err := p.statements(ctx, batches)
	if err != nil {
		return err
	}
	err = execAll(ctx, p.db, statements)
	if err == nil {
		return nil
	}
	if ofTheMoment(err) {
		err = momentary{err}
	}
	if sqlState(err) == undefinedTable { // somebody has dropped it: the next call looks again
		for _, b := range batches {
			p.topics.Delete(b.topic)
		}
	}
	if errors.Is(err, errUnknown) {
		return fmt.Errorf("sqlbroker: whether %d messages to %s are taken is not known: %w", n, named(batches), err)
	}
	return fmt.Errorf("sqlbroker: of %d messages to %s, none are taken: %w", n, named(batches), err)
}

func named(batches []batch) string {
	if len(batches) == 1 {
		return fmt.Sprintf("topic %q", batches[0].topic)
	}
	return fmt.Sprintf("%d topics", len(batches))
}

// statements returns the inserts of all batches, and the number of their messages.
func (p *Publisher) statements(ctx context.Context, batches []batch) (statements []insert, n int, err error) {
	for _, b := range batches {
		t, err := p.tables(ctx, b.topic)
		if err != nil {
			return nil, 0, err
		}
		if statements, err = appendInserts(statements, p.cfg, b, t); err != nil {
			return nil, 0, fmt.Errorf("sqlbroker: topic %q: %w", b.topic, err)
		}
		n += len(b.msgs)
	}
	return statements, n, nil
}

func (p *Publisher) tables(ctx context.Context, topic string) (tables, error) {
	if known, ok := p.topics.Load(topic); ok {
		return known.(tables), nil //nolint:forcetypeassert // the map has no others
	}
	if err := checkTopic(topic); err != nil {
		return tables{}, err
	}
	t, err := tablesOf(ctx, p.db, topic)
	if err == nil {
		p.topics.Store(topic, t)
	}
	return t, err
}

// momentary is an error that is not about the messages: there is no connection, say, or no
// room on the disk.
type momentary struct{ error }

func (m momentary) Unwrap() error { return m.error }

// Temporary tells callers that no message is at fault.
func (momentary) Temporary() bool { return true }

func ofTheMoment(err error) bool {
	if state := sqlState(err); state != "" {
		return slices.Contains([]string{"08", "25", "40", "53", "55", "57", "58", "XX"}, state[:2])
	}
	return true // no answer of the server's
}

// errUnknown says that a transaction may have been committed.
var errUnknown = errors.New("the connection was lost, or the time over, during the commit")

// execAll executes the statements in one transaction.
func execAll(ctx context.Context, db *sql.DB, statements []insert) error {
	if len(statements) == 1 { // without BEGIN and COMMIT, one round trip
		_, err := db.ExecContext(ctx, statements[0].sql, statements[0].args()...)
		return unknown(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s.sql, s.args()...); err != nil {
			return err
		}
	}
	return unknown(tx.Commit())
}

// unknown marks errors that leave open whether a commit has happened: what the server
// refuses has not.
func unknown(err error) error {
	if err == nil {
		return nil
	}
	if pgconn.SafeToRetry(err) { // nothing was sent
		return err
	}
	if state := sqlState(err); state != "" && !slices.Contains([]string{"08", "57", "58", "XX"}, state[:2]) {
		return err
	}
	return fmt.Errorf("%w: %w", errUnknown, err)
}

// Close has Publish return [ErrClosed] from now on; calls under way end by themselves.
// It leaves the database open.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
