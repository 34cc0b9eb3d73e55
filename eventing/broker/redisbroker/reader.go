package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

// reader reads the topics of a group: all of them with one command, on one connection.
type reader struct {
	s               *Subscriber
	group, consumer string
	changed         chan struct{} // there are other topics, or one has room
	acks            chan ack
	ackers          sync.WaitGroup
	most            int // that are read at a time; only run uses it

	mu      sync.Mutex
	streams []*stream
	over    bool // it takes no more of them
}

// returned is the consumer of a group to whom those that end give back what they have.
const returned = "waybill-returned"

const (
	blockTime = 500 * time.Millisecond // a longer one would hold up Close
	// shortBlock is for when not all topics take more, one of which may any time.
	shortBlock = 20 * time.Millisecond
	maxPause   = 5 * time.Second
)

// firstRead is how many messages are read when it is not yet known how large they are.
const firstRead = 8

func newReader(s *Subscriber, group string, n int) *reader {
	r := &reader{s: s, group: group, consumer: s.cfg.Consumer, changed: make(chan struct{}, 1), acks: make(chan ack, maxAcks), most: min(firstRead, s.cfg.Batch)}
	if n > 0 {
		r.consumer = fmt.Sprintf("%s-%d", r.consumer, n)
	}
	return r
}

// join returns the stream of a topic, or nil if the reader cannot have it. An ordered one
// is shared with nobody, also not with a subscription that is ending.
func (r *reader) join(topic string, ordered bool) *stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.streams {
		if t.topic == topic {
			if !ordered && !t.ordered && t.join() {
				return t
			}
			return nil
		}
	}
	if r.over || r.s.apart && len(r.streams) > 0 {
		return nil
	}
	t := newStream(topic, ordered, r.s.cfg.Batch)
	r.streams = append(r.streams, t)
	r.wake()
	return t
}

// finish gives back what is left of a stream without subscriptions, once its acks have been
// sent.
func (r *reader) finish(t *stream) {
	flushed := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	select {
	case r.acks <- ack{flushed: flushed}:
		select {
		case <-flushed:
		case <-ctx.Done(): // they come again
		}
	case <-ctx.Done():
	}
	r.giveBack(ctx, t, t.inHand())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams = slices.DeleteFunc(r.streams, func(other *stream) bool { return other == t })
	r.wake()
}

func (r *reader) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// snapshot returns the streams. If there are none, there will not be any.
func (r *reader) snapshot() []*stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = len(r.streams) == 0
	return slices.Clone(r.streams)
}

// run reads until all subscriptions have ended.
func (r *reader) run() {
	r.ackers.Go(r.sendAcks)
	wait := newBackOff()
	var seen []string
	for {
		topics := r.snapshot()
		if len(topics) == 0 {
			break
		}
		for _, t := range topics {
			if !slices.Contains(seen, t.topic) {
				seen = append(seen, t.topic)
			}
		}
		if err := r.round(topics); err != nil {
			r.adapt(err)
			pause := wait.NextBackOff()
			r.s.cfg.Logger.Warn("redisbroker: reading failed; will try again", "group", r.group, "error", err, "in", pause)
			r.rest(pause)
			continue
		}
		wait.Reset()
	}
	close(r.acks)
	r.ackers.Wait()
	r.s.forget(r)
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	for _, topic := range seen {
		r.leave(ctx, topic, r.consumer)
	}
}

// leaveTimeout bounds what is done for a good order only.
const leaveTimeout = 2 * time.Second

// newBackOff returns the pauses after failures, which are many if a server is down.
func newBackOff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(maxPause), backoff.WithMaxElapsedTime(0))
}

// adapt has less read at a time if there is no answer: it may take too long, or be too
// large for the server.
func (r *reader) adapt(err error) {
	if !refused(err) {
		r.most = max(1, r.most/2)
	}
}

// suit has more read at a time if that is quick and not too large, or else less.
func (r *reader) suit(size int, took time.Duration) {
	switch {
	case size > maxBytes:
		r.most = max(1, r.most/2)
	case took < r.s.patience/4 && size <= maxBytes/2:
		r.most = min(2*r.most, r.s.cfg.Batch)
	}
}

// rest waits, but not for a topic that is to be left.
func (r *reader) rest(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.changed:
	}
}

// round takes what others have left, keeps what is in hand, and reads what is new.
func (r *reader) round(topics []*stream) error {
	var ready []*stream
	room, block := 0, blockTime
	for _, t := range topics {
		if t.ended() || time.Now().Before(t.next) {
			continue
		}
		switch err := r.tend(t); {
		case refused(err):
			r.putOff(t, err) // others may be well
			continue
		case err != nil:
			return err
		}
		t.wait.Reset()
		if t.cursor != "0-0" { // others have left more
			block = shortBlock
		}
		if n := t.room(); n > 0 && len(t.held) == 0 {
			ready = append(ready, t)
			room = max(room, n)
		} else {
			block = shortBlock
		}
	}
	if len(ready) == 0 {
		r.rest(blockTime)
		return nil
	}
	return r.read(ready, room, block)
}

// putOff has a topic wait that the server has refused something for.
func (r *reader) putOff(t *stream, err error) {
	t.grouped = false
	pause := t.wait.NextBackOff()
	t.next = time.Now().Add(pause)
	r.s.cfg.Logger.Warn("redisbroker: a topic cannot be read; will try again", "topic", t.topic, "group", r.group, "error", err, "in", pause)
}

// read hands over what is new.
func (r *reader) read(topics []*stream, room int, block time.Duration) error {
	streams := make([]string, len(topics), 2*len(topics))
	for i, t := range topics {
		streams[i] = t.topic
	}
	ctx, cancel := context.WithTimeout(context.Background(), block+r.s.patience)
	defer cancel()
	began := time.Now()
	read, err := r.s.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: r.group, Consumer: r.consumer, Count: int64(min(room, r.most)), Block: block,
		Streams: append(streams, slices.Repeat([]string{">"}, len(topics))...),
	}).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		if refused(err) { // it does not say for which: those that are well have groups already
			for _, t := range topics {
				t.grouped = false
			}
		}
		return err
	}
	took, size := time.Since(began), 0
	for _, stream := range read {
		for _, t := range topics {
			switch {
			case t.topic != stream.Stream:
			case t.ordered:
				t.held = append(t.held, stream.Messages...) // for tend
				for i := range stream.Messages {
					size += sizeOf(&stream.Messages[i])
				}
			default:
				size += r.give(ctx, t, stream.Messages)
			}
		}
	}
	r.suit(size, took)
	return nil
}

func (s *Subscriber) forget(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers = slices.DeleteFunc(s.readers, func(other *reader) bool { return other == r })
}
