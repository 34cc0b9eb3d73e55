package redisbroker

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// ack is of a message, or asks to be told when all before have been sent.
type ack struct {
	stream  *stream
	entry   *redis.XMessage
	flushed chan struct{}
}

// maxAcks bounds what goes to Redis at a time.
const maxAcks = 1000

// sendAcks sends acks, as many at a time as there are, until their channel is closed.
func (r *reader) sendAcks() {
	given := false // up, as the subscriber is being closed
	for first := range r.acks {
		acked := map[*stream][]*redis.XMessage{}
		var flushed []chan struct{}
		for a, n, more := first, 0, true; more; n++ {
			if a.flushed != nil {
				flushed = append(flushed, a.flushed)
			} else {
				acked[a.stream] = append(acked[a.stream], a.entry)
			}
			if n == maxAcks {
				break
			}
			select {
			case a, more = <-r.acks:
			default:
				more = false
			}
		}
		given = given || !r.sendAll(acked)
		for _, c := range flushed {
			close(c)
		}
	}
}

// sendAll tries until Redis has the acks, or the subscriber is being closed: then they
// come again.
func (r *reader) sendAll(acked map[*stream][]*redis.XMessage) bool {
	for wait := newBackOff(); ; {
		err := r.send(acked)
		if err == nil {
			return true
		}
		pause := wait.NextBackOff()
		r.s.cfg.Logger.Warn("redisbroker: acks were not sent; will try again", "group", r.group, "error", err, "in", pause)
		select {
		case <-time.After(pause):
		case <-r.s.ctx.Done():
			return false
		}
	}
}

// send sends acks once, and removes those that have arrived.
func (r *reader) send(acked map[*stream][]*redis.XMessage) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.s.patience)
	defer cancel()
	pipeline := r.s.client.Pipeline()
	sent := map[*stream]*redis.IntCmd{}
	for t, entries := range acked {
		if ids := t.current(entries); len(ids) > 0 {
			sent[t] = pipeline.XAck(ctx, t.topic, r.group, ids...)
		}
	}
	var err error
	if len(sent) > 0 {
		_, err = pipeline.Exec(ctx)
	}
	for t, entries := range acked {
		if c := sent[t]; c == nil || c.Err() == nil || redis.HasErrorPrefix(c.Err(), "WRONGTYPE") { // the stream is gone
			t.settled(entries)
			delete(acked, t)
		}
	}
	if len(acked) == 0 {
		return nil
	}
	return err
}
