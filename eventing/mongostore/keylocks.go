package mongostore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
)

// keyLockTTL is how long a transaction may hold a key without being heard of; then another
// takes over, and it cannot commit.
const keyLockTTL = 30 * time.Second

// keyLocks are the ordering keys that a transaction holds.
type keyLocks struct {
	token string
	keys  []string
}

// LockKeys implements [eventing.OutboxStore], by a document for each key. A transaction
// that holds one for longer than 30 seconds may find at its end that another has taken it over, and fails.
func (s *Store) LockKeys(ctx context.Context, tx *Tx, keys []string) error {
	if err := tx.usable(s); err != nil {
		return err
	}
	if tx.session != nil {
		return errors.New("mongostore: SerializeKeys is not for transactions of a session: two that change the same aggregate conflict anyway")
	}
	if tx.locks.token == "" {
		tx.locks.token = eventing.NewID()
	}
	for _, key := range keys {
		if err := tx.locks.take(ctx, s, key); err != nil {
			return fmt.Errorf("lock the ordering key %s: %w", key, err)
		}
	}
	return nil
}

// take waits for a key.
func (l *keyLocks) take(ctx context.Context, s *Store, key string) error {
	for try := 0; ; try++ {
		now := time.Now()
		_, err := s.keys.InsertOne(ctx, bson.D{eq("_id", key), eq("token", l.token), eq("until", now.Add(keyLockTTL))})
		if mongo.IsDuplicateKeyError(err) {
			var changed *mongo.UpdateResult
			changed, err = s.keys.UpdateOne(ctx,
				bson.D{eq("_id", key), eq("$or", bson.A{bson.D{eq("token", l.token)}, bson.D{eq("until", bson.D{eq("$lte", now)})}})},
				set(bson.D{eq("token", l.token), eq("until", now.Add(keyLockTTL))}))
			if err == nil && changed.MatchedCount == 0 {
				if err := pause(ctx, try); err != nil {
					return err
				}
				continue
			}
		}
		if err == nil {
			l.keys = append(l.keys, key)
		}
		return typed(err)
	}
}

// check makes sure that the keys are held still.
func (l *keyLocks) check(ctx context.Context, s *Store) error {
	for _, key := range l.keys {
		held, err := s.keys.UpdateOne(ctx, bson.D{eq("_id", key), eq("token", l.token)}, set(bson.D{eq("until", time.Now().Add(keyLockTTL))}))
		if err != nil {
			return typed(err)
		}
		if held.MatchedCount == 0 {
			return fmt.Errorf("the lock of the ordering key %s has run out: %w", key, eventing.ErrSerialization)
		}
	}
	return nil
}

// release is for others not to have to wait: what is not released runs out.
func (l *keyLocks) release(ctx context.Context, s *Store) {
	if len(l.keys) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completionTimeout)
	defer cancel()
	for _, key := range l.keys {
		_, _ = s.keys.DeleteOne(ctx, bson.D{eq("_id", key), eq("token", l.token)})
	}
	l.keys = nil
}
