package redisbroker

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// An ordered stream has one reader at a time, which a lease says. But Redis does not know
// of leases: who had the stream before may have been reading when it lost it, and stopped
// for a while, so that entries are its that come before what is read here. And what Redis
// has sent here may never have arrived, as the connection broke; the client may even have
// read on without telling. So whatever is read waits until all that is pending is known,
// and is put in order with what was not.

// settleOrder hands over what has been read of an ordered stream, after what was missing.
func (r *reader) settleOrder(ctx context.Context, t *stream) error {
	known := t.inHand()
	for i := range t.held {
		known[t.held[i].ID] = &t.held[i]
	}
	// All of these can be known only if these are all.
	pending, err := r.s.client.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: t.topic, Group: r.group, Start: "-", End: "+", Count: int64(len(known) + 1),
	}).Result()
	if err != nil {
		return err
	}
	unknown := func(p redis.XPendingExt) bool { return known[p.ID] == nil }
	if slices.ContainsFunc(pending, unknown) {
		t.claiming()
		claimed, err := r.claimAll(ctx, t)
		t.held = append(t.held, claimed...)
		if err != nil {
			return err
		}
	}
	slices.SortStableFunc(t.held, func(a, b redis.XMessage) int { return compareIDs(a.ID, b.ID) })
	entries := slices.CompactFunc(t.held, func(a, b redis.XMessage) bool { return a.ID == b.ID && same(&a, b) })
	t.held = nil
	r.give(ctx, t, entries)
	return nil
}

// claimAll takes all that is pending, whoever has it.
func (r *reader) claimAll(ctx context.Context, t *stream) (all []redis.XMessage, err error) {
	for next := "0-0"; ; {
		var entries []redis.XMessage
		entries, next, err = r.s.client.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: t.topic, Group: r.group, Consumer: r.consumer, Start: next, Count: int64(r.most),
		}).Result()
		all = append(all, entries...)
		if err != nil || next == "0-0" {
			return all, err
		}
	}
}
