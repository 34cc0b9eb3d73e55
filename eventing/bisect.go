package eventing

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// publication is the part of a batch that goes to one topic.
type publication struct {
	*topicBatch
	b        *batch
	passed   int
	suspects []*suspect
	held     map[string]bool // ordering keys of which nothing more may go out
	failing  int             // suspects since something last passed
	err      error           // the last one
	stopped  bool            // the broker takes nothing: a later try would overtake what was given up
}

// suspect is a message that failed alone.
type suspect struct {
	sending      *sending
	topic        string
	msg          *message.Message
	err          error
	passedBefore int
	alone        bool // it fails, and others pass
}

// maxTries is how often a message that fails alone is tried before it counts as
// unpublishable.
const maxTries = 3

// stillFails tries a suspect again, now that others are known to pass.
func (s *suspect) stillFails(ctx context.Context, pub message.Publisher) bool {
	for range maxTries - 1 {
		if ctx.Err() != nil {
			return false
		}
		if s.err = pub.Publish(s.topic, s.msg); s.err == nil {
			s.sending.take(s.topic)
			return false
		}
	}
	return true
}

// halves publishes messages from i up to j, and if that fails, each half of
// them.
func (p *publication) halves(ctx context.Context, i, j int) {
	if i == j || p.stopped || ctx.Err() != nil {
		return
	}
	batch, sent := p.messages[i:j], p.sendings[i:j]
	if len(p.held) > 0 {
		batch, sent = p.withoutHeld(i, j)
	}
	if len(batch) == 0 {
		return
	}
	for _, m := range batch {
		m.SetContext(ctx)
	}
	err := p.b.w.d.pub.Publish(p.topic, batch...)
	if err == nil {
		p.passed += len(batch)
		p.failing, p.b.failing = 0, time.Time{}
		for _, s := range sent {
			s.take(p.topic)
		}
		return
	}
	p.err = err
	if p.b.failing.IsZero() {
		p.b.failing = time.Now()
	}
	if len(batch) == 1 {
		p.failing++
		p.suspects = append(p.suspects, &suspect{sending: sent[0], topic: p.topic, msg: batch[0], err: err, passedBefore: p.passed})
		if key := sent[0].row.OrderingKey; sent[0].ordered && key != "" {
			p.held[key] = true
		}
	}
	if p.failing >= maxSuspects || time.Since(p.b.failing) > maxProbing {
		p.stopped = true // the rest stays pending
	}
	if len(batch) == 1 {
		return
	}
	half := i + (j-i)/2
	p.halves(ctx, i, half)
	p.halves(ctx, half, j)
}

// A broker that takes nothing is asked so often, or for so long, in a pass. It has to
// be asked more than once: the first messages in line may all be poison.
const (
	maxSuspects = 64
	maxProbing  = 5 * time.Second
)

func (p *publication) withoutHeld(i, j int) (batch []*message.Message, sent []*sending) {
	for k := i; k < j; k++ {
		if s := p.sendings[k]; !p.held[s.row.OrderingKey] || !s.ordered {
			batch = append(batch, p.messages[k])
			sent = append(sent, s)
		}
	}
	return batch, sent
}
