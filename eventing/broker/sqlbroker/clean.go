package sqlbroker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Bounds of a clean-up. A statement takes some milliseconds of the session that
// deliveries need, too.
const (
	cleanBatch   = 1_000 // rows a statement
	cleanBatches = 1_000 // statements a topic and round
)

// cleanUp deletes what all groups of a topic have acked, now and then.
func (s *Subscriber) cleanUp() {
	if s.cfg.CleanInterval < 0 {
		return
	}
	tick := time.NewTicker(s.cfg.CleanInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		topics := map[string]bool{}
		s.mu.Lock()
		for t := range s.all {
			if t.wants {
				topics[t.topic] = true
			}
		}
		s.mu.Unlock()
		for topic := range topics {
			if err := s.clean(topic); err != nil && !errors.Is(err, errDown) && s.ctx.Err() == nil {
				s.cfg.Logger.Warn("sqlbroker: deleting what all consumer groups have acked failed; will try again", "topic", topic, "error", err)
			}
		}
	}
}

// clean deletes the messages of a topic up to the position of its slowest group, if it has
// groups. Each statement looks for that itself: a group may have come since the last one,
// or the topic may have been renumbered.
func (s *Subscriber) clean(topic string) error {
	for range cleanBatches {
		var deleted int64
		err := s.do(s.ctx, func(ctx context.Context, c *pgx.Conn) error {
			// Another subscriber that is at it has the lock.
			tag, err := c.Exec(ctx, `DELETE FROM `+messagesTable(topic)+`
				WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('waybill sqlbroker clean ' || $1, 0)))
				AND ctid = ANY (ARRAY (SELECT ctid FROM `+messagesTable(topic)+`
					WHERE (transaction_id, "offset") <= (
						SELECT last_processed_transaction_id, coalesce(offset_acked, 0) FROM `+offsetsTable(topic)+` ORDER BY 1, 2 LIMIT 1)
					ORDER BY transaction_id, "offset" LIMIT $2))`,
				messagesTable(topic), cleanBatch)
			deleted = tag.RowsAffected()
			return err
		})
		if err != nil || deleted < cleanBatch {
			return err
		}
	}
	return nil
}
