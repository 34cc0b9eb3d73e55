package redisbroker

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// tend makes the group of a new topic, says of what is in hand that it is, and takes
// what others have left, each when it is time to.
func (r *reader) tend(t *stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.s.patience)
	defer cancel()
	if !t.grouped {
		if err := createGroup(ctx, r.s.client, t.topic, r.group); err != nil {
			return err
		}
		t.grouped = true
		r.leave(ctx, t.topic, "")
	}
	now := time.Now()
	if now.Sub(t.kept) >= r.s.cfg.ClaimAfter/3 {
		if err := r.keep(ctx, t); err != nil {
			return err
		}
		t.kept = now
	}
	if now.Before(t.nextClaim) && len(t.held) == 0 {
		return nil
	}
	if t.ordered {
		t.nextClaim = now.Add(r.claimPause())
		return r.settleOrder(ctx, t)
	}
	n := min(t.room(), r.most)
	if n == 0 {
		return nil
	}
	t.claiming()
	entries, next, err := r.s.client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
		Stream: t.topic, Group: r.group, Consumer: r.consumer, MinIdle: r.s.cfg.ClaimAfter, Start: t.cursor, Count: int64(n),
	}).Result()
	if err != nil {
		return err
	}
	t.cursor = next
	if next == "0-0" {
		t.nextClaim = now.Add(r.claimPause())
	}
	took := time.Since(now)
	if size := r.give(ctx, t, entries); len(entries) > 0 {
		r.suit(size, took)
	}
	return nil
}

// claimPause is how long after looking for what others have left the next look is.
func (r *reader) claimPause() time.Duration { return min(r.s.cfg.ClaimAfter/4, maxPause) }

// keep says that what is in hand is not left, so that nobody takes it. What is pending
// for this consumer and not in hand was lost on the way here: it may be taken.
func (r *reader) keep(ctx context.Context, t *stream) error {
	return r.ofMine(ctx, t, t.inHand(), func(ids []string) error {
		return r.s.client.XClaimJustID(ctx, &redis.XClaimArgs{Stream: t.topic, Group: r.group, Consumer: r.consumer, Messages: ids}).Err()
	})
}

// giveBack leaves entries to the next subscriber that claims, as not yet delivered.
func (r *reader) giveBack(ctx context.Context, t *stream, entries map[string]*redis.XMessage) {
	err := r.ofMine(ctx, t, entries, func(ids []string) error {
		args := []any{"xclaim", t.topic, r.group, returned, 0}
		for _, id := range ids {
			args = append(args, id)
		}
		return r.s.client.Do(ctx, append(args, "idle", (24*time.Hour).Milliseconds(), "justid")...).Err()
	})
	if err != nil && !lost(err) {
		r.s.cfg.Logger.Warn("redisbroker: messages could not be given back; another subscriber takes them later",
			"topic", t.topic, "messages", len(entries), "error", err, "after", r.s.cfg.ClaimAfter)
	}
}

// ofMine calls do with the IDs of those entries that are still this consumer's, some at a
// time. Others have been taken by somebody, because this process was stopped for long,
// and stay theirs.
func (r *reader) ofMine(ctx context.Context, t *stream, entries map[string]*redis.XMessage, do func(ids []string) error) error {
	for start := "-"; len(entries) > 0; {
		pending, err := r.s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
			Stream: t.topic, Group: r.group, Start: start, End: "+", Count: maxAcks, Consumer: r.consumer,
		}).Result()
		if err != nil {
			return err
		}
		var ids []string
		for _, p := range pending {
			if entries[p.ID] != nil {
				ids = append(ids, p.ID)
			}
		}
		if len(ids) > 0 {
			if err := do(ids); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
		}
		if len(pending) < maxAcks {
			break
		}
		start = "(" + pending[len(pending)-1].ID
	}
	return nil
}

// leaveScript removes a consumer from a group, and those that have not been heard of for
// long. One that has something pending stays: that would be lost. A script, as a read that
// was given up may still come in between.
var leaveScript = redis.NewScript(`
for _, fields in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local consumer = {}
  for i = 1, #fields, 2 do consumer[fields[i]] = fields[i + 1] end
  if consumer['pending'] == 0 and (consumer['name'] == ARGV[2] or consumer['idle'] > tonumber(ARGV[3])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer['name'])
  end
end
return 0
`)

// goneAfter is how long a consumer is silent whose process was killed: one that lives
// reads all the time.
const goneAfter = time.Hour

// leave removes a consumer, if one is named, and those of processes that are gone.
func (r *reader) leave(ctx context.Context, topic, consumer string) {
	err := removeConsumers(ctx, r.s.client, topic, r.group, consumer, goneAfter)
	if err != nil && !lost(err) {
		r.s.cfg.Logger.Debug("redisbroker: consumers stay in their group", "topic", topic, "group", r.group, "error", err)
	}
}

func removeConsumers(ctx context.Context, client redis.UniversalClient, topic, group, consumer string, silent time.Duration) error {
	return leaveScript.Run(ctx, client, []string{topic}, group, consumer, silent.Milliseconds()).Err()
}

// give hands entries to a subscription, or back if it has ended. It returns the size of
// those that it has handed over, in bytes.
func (r *reader) give(ctx context.Context, t *stream, entries []redis.XMessage) (size int) {
	size, ok := t.take(entries)
	if ok {
		return size
	}
	back := make(map[string]*redis.XMessage, len(entries))
	for i := range entries {
		back[entries[i].ID] = &entries[i]
	}
	r.giveBack(ctx, t, back)
	return 0
}

// lost reports whether an error says that there is no stream, or no group: it was
// deleted, or the server has lost its data.
func lost(err error) bool {
	return redis.HasErrorPrefix(err, "NOGROUP") || redis.HasErrorPrefix(err, "UNBLOCKED")
}

// refused reports whether an error is the server's answer, and not that of a connection.
func refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
