package sqlbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// newer is the condition of messages after a position that can be read: when every
// transaction that is older than theirs has ended, so that none can come up before
// them any more.
const newer = ` WHERE (transaction_id, "offset") > ($1::xid8, $2::bigint)
	AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())`

// joinSQL makes a consumer group, as watermill-sql does.
func joinSQL(topic string) string {
	return `INSERT INTO ` + offsetsTable(topic) + ` (consumer_group, offset_acked, last_processed_transaction_id)
		VALUES ($1, 0, '0') ON CONFLICT DO NOTHING`
}

// row is what the table has of a message.
type row struct {
	position
	uuid              string
	payload, metadata []byte
}

// decode returns the metadata. None is none, as with watermill-sql.
func (r row) decode() (m message.Metadata, err error) {
	if r.metadata != nil {
		err = json.Unmarshal(r.metadata, &m)
	}
	if m == nil {
		m = message.Metadata{}
	}
	return m, err
}

// message returns a message of its own, and what ends its context.
func (r row) message(ctx context.Context) (*message.Message, context.CancelFunc) {
	m := message.NewMessage(r.uuid, slices.Clone(r.payload))
	m.Metadata, _ = r.decode() // read has seen that it can be
	ctx, cancel := context.WithCancel(ctx)
	m.SetContext(ctx)
	return m, cancel
}

// errRestored says that transactions of the server are numbered anew.
var errRestored = errors.New("the group's position is ahead of the server's transactions, as after a restore into another server: what is published would not be read: see Renumber")

// sync reads the group's position. If it is another one than was left, somebody else has
// had the topic: the queue begins anew there.
func (t *subscription) sync() error {
	var p position
	var ahead bool
	err := t.s.do(t.ctx, func(ctx context.Context, c *pgx.Conn) error {
		position := `SELECT last_processed_transaction_id, coalesce(offset_acked, 0),
			last_processed_transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
			FROM ` + offsetsTable(t.topic) + ` WHERE consumer_group = $1`
		err := c.QueryRow(ctx, position, t.group).Scan(&p.tx, &p.offset, &ahead)
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		_, err = c.Exec(ctx, joinSQL(t.topic), t.group)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("read the group's position: %w", err)
	case ahead:
		return errRestored
	}
	if p != t.kept && p != t.done {
		t.s.mu.Lock()
		t.readTo, t.drained = p, false
		t.s.mu.Unlock()
		t.inHand -= t.nacked // nobody has those
		t.queue, t.next, t.nacked, t.done, t.flushAt = nil, 0, 0, p, time.Time{}
	}
	t.kept, t.synced = p, true
	return nil
}

// flush moves the group's position past what is acked, if it still is where this
// subscription left it: somebody else, such as a former holder of a lease, a subscriber of
// watermill-sql or an operator, may have moved it. It does not wait for a subscriber of
// watermill-sql, whose transaction has the row locked while its handler runs.
func (t *subscription) flush() error {
	if t.done == t.kept {
		t.flushAt = time.Time{}
		return nil
	}
	var moved int64
	err := t.s.do(t.ctxOrLife(), func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, `UPDATE `+offsetsTable(t.topic)+` SET last_processed_transaction_id = $4::xid8, offset_acked = $5
			WHERE consumer_group = (SELECT consumer_group FROM `+offsetsTable(t.topic)+`
				WHERE consumer_group = $1 AND last_processed_transaction_id = $2::xid8 AND coalesce(offset_acked, 0) = $3
				FOR UPDATE SKIP LOCKED)`,
			t.group, t.kept.tx, t.kept.offset, t.done.tx, t.done.offset)
		moved = tag.RowsAffected()
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("move the group's position: %w", err)
	case moved == 1:
		t.kept, t.flushAt = t.done, time.Time{}
		return nil
	}
	t.synced = false
	return errElsewhere
}

var errElsewhere = errors.New("the group's position was moved, or is locked, by somebody else")

// ctxOrLife is for what is still to be done when the subscription has ended.
func (t *subscription) ctxOrLife() context.Context {
	if t.ctx.Err() != nil {
		return t.s.life
	}
	return t.ctx
}

// read adds to the queue, as far as there is room and there are messages.
func (t *subscription) read() error {
	t.s.mu.Lock()
	from, drained := t.readTo, t.drained
	t.s.mu.Unlock()
	if drained {
		return nil
	}
	room := min(t.limit-len(t.queue), t.most)
	var rows []row
	err := t.s.do(t.ctx, func(ctx context.Context, c *pgx.Conn) error {
		found, err := c.Query(ctx, `SELECT transaction_id, "offset", uuid, payload, metadata FROM `+messagesTable(t.topic)+newer+`
			ORDER BY transaction_id, "offset" LIMIT $3`, from.tx, from.offset, room)
		if err != nil {
			return err
		}
		rows, err = pgx.CollectRows(found, func(found pgx.CollectableRow) (r row, err error) {
			err = found.Scan(&r.tx, &r.offset, &r.uuid, &r.payload, &r.metadata)
			return r, err
		})
		return err
	})
	if err != nil {
		t.most = max(1, t.most/2) // it may be too much for the link
		return fmt.Errorf("read messages: %w", err)
	}
	size := 0
	for _, r := range rows {
		size += len(r.payload) + len(r.metadata)
		_, err := r.decode()
		t.queue = append(t.queue, &entry{row: r, malady: err})
		from = r.position
	}
	switch {
	case size > maxBytes:
		t.most = max(1, t.most/2)
	case len(rows) == room && size <= maxBytes/2:
		t.most = min(2*t.most, t.limit)
	}
	t.s.mu.Lock()
	t.readTo, t.drained = from, len(rows) < room
	t.s.mu.Unlock()
	return nil
}

// maxBytes is how large the messages of a read are, more or less, and firstRead how many
// are read while it is not known how large they are.
const (
	maxBytes  = 8 << 20
	firstRead = 8
)

// quarantine copies a row that is no message to where somebody can look at it.
func (t *subscription) quarantine(e *entry) error {
	if err := t.insertQuarantined(e); err != nil {
		return fmt.Errorf("a row with malformed metadata (transaction %d, offset %d) holds up the topic, as it cannot go to quarantine: %w", e.tx, e.offset, err)
	}
	t.logger.Error("sqlbroker: a row with malformed metadata is in quarantine", "uuid", e.uuid, "transaction", e.tx, "offset", e.offset, "error", e.malady)
	return nil
}

func (t *subscription) insertQuarantined(e *entry) error {
	ctx, cancel := context.WithTimeout(t.ctx, callTimeout)
	defer cancel()
	to, err := tablesOf(ctx, t.s.db, QuarantineTopic)
	if err != nil {
		return err
	}
	m := message.NewMessage(e.uuid, e.payload)
	m.Metadata = message.Metadata{
		"waybill_topic": t.topic, "waybill_group": t.group, "waybill_error": e.malady.Error(), "waybill_metadata": string(e.metadata),
		"waybill_transaction_id": fmt.Sprint(e.tx), "waybill_offset": fmt.Sprint(e.offset),
	}
	inserts, err := appendInserts(nil, PublisherConfig{InsertMessages: 1}, batch{QuarantineTopic, []*message.Message{m}}, to)
	if err != nil {
		return err
	}
	return execAll(ctx, t.s.db, inserts)
}
