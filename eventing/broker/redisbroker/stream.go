package redisbroker

import (
	"maps"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"
)

// stream is what a reader has of a topic. The subscriptions of the topic share it.
type stream struct {
	topic   string
	ordered bool
	batch   int
	filled  chan struct{} // there is something in the queue

	mu    sync.Mutex
	subs  int // when there are none any more, it has ended for ever
	queue []queued
	bytes int                        // of the queue
	hand  map[string]*redis.XMessage // by ID, what is read and not yet acked
	late  map[string]*redis.XMessage // what was acked while a claim was under way, else nil

	// Only the reader uses these.
	grouped         bool
	wait            *backoff.ExponentialBackOff // after the server has refused something
	next            time.Time                   // not to be tended before
	kept, nextClaim time.Time
	cursor          string
	held            []redis.XMessage // if ordered: read, and others may have what comes before
}

// queued is an entry, and its size in bytes.
type queued struct {
	*redis.XMessage
	size int
}

// newStream is one with its first subscription.
func newStream(topic string, ordered bool, batch int) *stream {
	return &stream{
		topic: topic, ordered: ordered, batch: batch, subs: 1, filled: make(chan struct{}, 1), hand: map[string]*redis.XMessage{},
		wait: newBackOff(), kept: time.Now(), cursor: "0-0",
	}
}

// join counts one more subscription, unless the last one has left.
func (t *stream) join() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subs == 0 {
		return false
	}
	t.subs++
	return true
}

// part ends a subscription, which has left entries over. It reports whether that was the
// last one.
func (t *stream) part(over []*redis.XMessage) (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs--
	first := make([]queued, len(over), len(over)+len(t.queue))
	for i, e := range over {
		first[i] = queued{e, sizeOf(e)}
		t.bytes += first[i].size
	}
	t.queue = append(first, t.queue...)
	t.signal()
	return t.subs == 0
}

func (t *stream) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subs == 0
}

// maxBytes is how large the messages of a read, and those of a queue, are, more or less:
// Redis counts messages, not bytes.
const maxBytes = 8 << 20

func sizeOf(e *redis.XMessage) (n int) {
	for field, value := range e.Values {
		text, _ := value.(string)
		n += len(field) + len(text)
	}
	return n
}

// room returns how many messages may be read: a batch, when there is less than half of
// one left, and they are not too large.
func (t *stream) room() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.batch - len(t.queue); t.subs > 0 && 2*n > t.batch && t.bytes < maxBytes {
		return n
	}
	return 0
}

// inHand returns what is not yet acked, by ID.
func (t *stream) inHand() map[string]*redis.XMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.hand)
}

// claiming begins a claim, which the next take ends. What is acked in between may be in
// its reply all the same, and is not taken again.
func (t *stream) claiming() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = map[string]*redis.XMessage{}
}

// take queues entries, unless the last subscription has ended, and returns their size in
// bytes.
func (t *stream) take(entries []redis.XMessage) (size int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := t.late
	t.late = nil
	if t.subs == 0 {
		return 0, len(entries) == 0
	}
	for _, e := range entries {
		if !same(t.hand[e.ID], e) && !same(late[e.ID], e) {
			t.hand[e.ID] = &e
			t.queue = append(t.queue, queued{&e, sizeOf(&e)})
			size += t.queue[len(t.queue)-1].size
		}
	}
	t.bytes += size
	t.signal()
	return size, true
}

// same is false for entries of one ID that are two: the server has lost the one in hand,
// and then given its ID to another.
func same(inHand *redis.XMessage, e redis.XMessage) bool {
	return inHand != nil && maps.Equal(inHand.Values, e.Values)
}

// signal wakes a subscription, if there is anything for one.
func (t *stream) signal() {
	if len(t.queue) == 0 {
		return
	}
	select {
	case t.filled <- struct{}{}:
	default:
	}
}

// pop takes the first entry from the queue. left is how many there are besides.
func (t *stream) pop() (e *redis.XMessage, left int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return nil, 0
	}
	first := t.queue[0]
	t.queue[0] = queued{}
	t.queue = t.queue[1:]
	t.bytes -= first.size
	t.signal()
	return first.XMessage, len(t.queue)
}

// current returns the IDs of those entries that are in hand: an ack of another would be
// one of what has its ID now.
func (t *stream) current(entries []*redis.XMessage) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ids []string
	for _, e := range entries {
		if t.hand[e.ID] == e {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// settled forgets what has been acked.
func (t *stream) settled(entries []*redis.XMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		if t.hand[e.ID] == e {
			delete(t.hand, e.ID)
			if t.late != nil {
				t.late[e.ID] = e
			}
		}
	}
}
