package eventingtest

import (
	"errors"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

var errRefused = errors.New("the broker does not take it")

// broker is the broker of the suite: it takes messages or refuses them, and
// keeps them for its subscribers until these have acked them.
type broker struct {
	mu     sync.Mutex
	refuse func(m *message.Message) bool // nil: takes everything
	queues map[string][]*inTransit       // by topic
	sent   []*inTransit                  // all that it ever took, in order
	asked  int                           // calls of Publish
}

// inTransit is a message that the broker has taken.
type inTransit struct {
	topic string
	msg   *message.Message
	done  func(m *message.Message, err error) // nil without completion
}

func newBroker() *broker { return &broker{queues: map[string][]*inTransit{}} }

// Publish takes all of the messages or none.
func (b *broker) Publish(topic string, msgs ...*message.Message) error {
	return b.take(topic, nil, msgs)
}

func (b *broker) Close() error { return nil }

func (b *broker) take(topic string, done func(*message.Message, error), msgs []*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	if b.refuse != nil && slices.ContainsFunc(msgs, b.refuse) {
		return errRefused
	}
	for _, m := range msgs {
		it := &inTransit{topic, m, done}
		b.queues[topic] = append(b.queues[topic], it)
		b.sent = append(b.sent, it)
	}
	return nil
}

// next returns the oldest message of a topic, or nil.
func (b *broker) next(topic string) *inTransit {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queues[topic]) == 0 {
		return nil
	}
	return b.queues[topic][0]
}

// ack takes the oldest message off its topic.
func (b *broker) ack(it *inTransit) {
	b.mu.Lock()
	b.queues[it.topic] = b.queues[it.topic][1:]
	b.mu.Unlock()
	if it.done != nil {
		it.done(it.msg, nil)
	}
}

// lose forgets what has not been acked.
func (b *broker) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.queues)
}

// ids returns the event IDs of the messages that it ever took on a topic, or on all.
func (b *broker) ids(topic string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, it := range b.sent {
		if topic == "" || it.topic == topic {
			ids = append(ids, it.msg.UUID)
		}
	}
	return ids
}

func (b *broker) refuseIf(f func(m *message.Message) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = f
}

// refuseEvents refuses messages of these events.
func (b *broker) refuseEvents(ids ...string) {
	b.refuseIf(func(m *message.Message) bool { return slices.Contains(ids, m.UUID) })
}

// completionBroker is the same broker in the same process: it says when a message
// has been acked, and what it has dies with the process.
type completionBroker struct{ *broker }

func (b completionBroker) PublishWithCompletion(topic string, done func(m *message.Message, err error), msgs ...*message.Message) error {
	return b.take(topic, done, msgs)
}
