package redisbroker

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// maxSenders is how many transactions with calls of one message are under way at a time.
// While they are, further calls gather, and go together with the next.
const maxSenders = 2

// gatherer has the calls that wait.
type gatherer struct {
	mu      sync.Mutex
	senders int
	calls   []*call
}

// call is one of Publish with one message. It has its own copy of the message, as it may
// be given up while it is being sent. Its memory is used again.
type call struct {
	ctx    context.Context
	topics [1]string
	msgs   [1]*message.Message
	own    message.Message
	tx     transaction // of one command
	done   chan error
}

// newCall returns the call that publishes a message.
func (p *Publisher) newCall(ctx context.Context, topic string, m *message.Message) (*call, error) {
	c, ok := p.calls.Get().(*call)
	if !ok {
		c = &call{done: make(chan error, 1)}
		c.msgs[0] = &c.own
	}
	c.ctx, c.topics[0] = ctx, topic
	c.own.UUID, c.own.Metadata, c.own.Payload = m.UUID, m.Metadata, append(c.own.Payload[:0], m.Payload...)
	if err := c.tx.encode(p.cfg, c.topics[:], c.msgs[:]); err != nil {
		p.release(c)
		return nil, err
	}
	return c, nil
}

// maxKept is how large a message's memory may be to be used again, in bytes.
const maxKept = 64 << 10

// release lets go of a call that is concluded.
func (p *Publisher) release(c *call) {
	c.ctx, c.own.Metadata = nil, nil
	if cap(c.own.Payload) <= maxKept {
		c.tx.reset()
		p.calls.Put(c)
	}
}

// publishOne publishes a message, with those of other calls if there are any.
func (p *Publisher) publishOne(ctx context.Context, topic string, m *message.Message) error {
	c, err := p.newCall(ctx, topic, m)
	if err != nil {
		return err
	}
	if g := &p.gatherer; !g.wait(c) {
		p.send([]*call{c})
		if calls := g.next(p.cfg); calls != nil {
			go p.sendOn(calls)
		}
	}
	select {
	case err = <-c.done:
	case <-ctx.Done():
		p.gatherer.leave(c)
		select {
		case err = <-c.done:
		default:
			return ctx.Err() // and c is the sender's
		}
	}
	p.release(c)
	return err
}

// wait leaves a call to those who are sending, unless it may be sent at once.
func (g *gatherer) wait(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.senders < maxSenders {
		g.senders++
		return false
	}
	g.calls = append(g.calls, c)
	return true
}

// next takes calls that wait, as many as a transaction may have; if there are none, there
// is one sender less.
func (g *gatherer) next(cfg PublisherConfig) []*call {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < min(len(g.calls), cfg.TransactionMessages) && (n == 0 || size+g.calls[n].tx.size <= cfg.TransactionBytes) {
		size += g.calls[n].tx.size
		n++
	}
	if n == 0 {
		g.senders--
		return nil
	}
	calls := slices.Clone(g.calls[:n])
	g.calls = slices.Delete(g.calls, 0, n)
	return calls
}

// leave gives up a call whose context has ended. If it is being sent, its message may be
// added.
func (g *gatherer) leave(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = slices.DeleteFunc(g.calls, func(other *call) bool { return other == c })
}

// sendOn sends until no calls wait any more.
func (p *Publisher) sendOn(calls []*call) {
	for calls != nil {
		p.send(calls)
		runtime.Gosched() // those that have their answer may call again, and go along
		calls = p.gatherer.next(p.cfg)
	}
}

// send sends calls in one transaction. Those that Redis refuses only because of others go
// again without these.
func (p *Publisher) send(calls []*call) {
	for len(calls) > 0 {
		calls = slices.DeleteFunc(calls, func(c *call) bool {
			err := c.ctx.Err()
			if err != nil {
				c.done <- err
			}
			return err != nil
		})
		if len(calls) > 0 {
			calls = p.sendOnce(calls)
		}
	}
}

// sendOnce returns those that have to go again.
func (p *Publisher) sendOnce(calls []*call) (again []*call) {
	commands := make([]redis.Cmder, len(calls))
	for i, c := range calls {
		commands[i] = c.tx.commands[0]
	}
	ctx, cancel := together(calls)
	defer cancel()
	err := p.exec(ctx, commands)
	unsent := err != nil && !slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil })
	for i, c := range calls {
		switch cause := commands[i].Err(); {
		case unsent:
			c.done <- err
		case redis.IsExecAbortError(cause) && len(calls) > 1:
			commands[i].SetErr(nil)
			again = append(again, c)
		default:
			c.done <- cause
		}
	}
	if len(again) == len(calls) { // there is none at fault
		for _, c := range again {
			c.done <- err
		}
		return nil
	}
	return again
}

// together is a context with the latest deadline of the calls.
func together(calls []*call) (context.Context, context.CancelFunc) {
	if len(calls) == 1 {
		return calls[0].ctx, func() {}
	}
	var latest time.Time
	for _, c := range calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return context.Background(), func() {}
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	return context.WithDeadline(context.Background(), latest)
}
