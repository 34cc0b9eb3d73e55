package eventing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// publish sends claimed rows and settles those that went out. It returns how
// many rows it dealt with.
func (d *Dispatcher) publish(ctx context.Context, rows []OutboxRow) (int, error) {
	b := batch{d: d, topics: map[string][]*sending{}, messages: map[string][]*message.Message{}}
	failed := 0
	held := map[string]bool{} // keys of which nothing more may go out
	for _, row := range rows {
		if held[row.OrderingKey] {
			continue
		}
		reason, err := b.add(row)
		if err == nil {
			continue
		}
		holdKey := row.Consumer == "" && row.OrderingKey != "" && b.orderedRoute(row) // a replay's consumer holds its key itself
		if err := d.fail(ctx, row, reason, err, holdKey); err != nil {
			return failed, err
		}
		failed++
		held[row.OrderingKey] = holdKey
	}
	if cp, ok := d.pub.(CompletionPublisher); ok {
		n, err := b.launch(cp)
		settled, settleErr := d.settle(ctx, b.unrouted)
		if err == nil {
			err = settleErr
		}
		return failed + n + settled, err
	}
	broken := b.send(ctx)
	n, err := d.settle(ctx, b.sent())
	if err != nil {
		return failed + n, err
	}
	for _, s := range b.poison {
		if err := d.fail(ctx, s.row, ReasonUnpublishable, s.err, s.ordered && s.row.Consumer == "" && s.row.OrderingKey != ""); err != nil {
			return failed + n, err
		}
		failed++
	}
	return failed + n, broken
}

// sending is a row on its way out.
type sending struct {
	row     OutboxRow
	open    int      // topics that have not taken it yet
	taken   []string // those that have
	ordered bool
	err     error
}

// batch is what one pass publishes.
type batch struct {
	d          *Dispatcher
	sendings   []*sending
	unrouted   []OutboxRow // of types that are known to go nowhere
	topicOrder []string
	topics     map[string][]*sending
	messages   map[string][]*message.Message
	poison     []*sending
}

// add routes a row. The reason belongs to the error.
func (b *batch) add(row OutboxRow) (ReasonCode, error) {
	routes, routed := b.d.routes.Route(row.EventType)
	if row.Consumer != "" {
		r, known := b.d.routes.Consumer(row.Consumer)
		routes, routed = []Route{r}, known
	}
	if !routed {
		return ReasonNoRoute, errNoRoute
	}
	if len(routes) == 0 {
		b.unrouted = append(b.unrouted, row)
		return "", nil
	}
	out, err := messages(row, routes, b.d.inFlight != nil)
	if err != nil {
		return ReasonEnvelopeMalformed, err
	}
	s := &sending{row: row, taken: b.d.taken[row.Seq], ordered: anyOrdered(routes)}
	b.sendings = append(b.sendings, s)
	for _, o := range out {
		if slices.Contains(s.taken, o.topic) {
			continue
		}
		s.open++
		if b.topics[o.topic] == nil {
			b.topicOrder = append(b.topicOrder, o.topic)
		}
		b.topics[o.topic] = append(b.topics[o.topic], s)
		b.messages[o.topic] = append(b.messages[o.topic], o.msg)
	}
	return "", nil
}

func anyOrdered(routes []Route) bool {
	for _, r := range routes {
		if r.Ordered {
			return true
		}
	}
	return false
}

func (b *batch) orderedRoute(row OutboxRow) bool {
	routes, _ := b.d.routes.Route(row.EventType)
	return anyOrdered(routes)
}

// sent returns the rows that are out, and remembers of the others what is.
func (b *batch) sent() []OutboxRow {
	rows := b.unrouted
	b.d.taken = map[int64][]string{}
	for _, s := range b.sendings {
		switch {
		case s.open == 0:
			rows = append(rows, s.row)
		case len(s.taken) > 0:
			b.d.taken[s.row.Seq] = s.taken
		}
	}
	return rows
}

// take records that a topic has the row's message.
func (s *sending) take(topic string) {
	s.open--
	s.taken = append(s.taken, topic)
}

// send publishes to a broker that answers when it has the messages. Rows that it
// did not take stay pending, and no attempt is counted; the error says that it has
// taken none at all. A message is poison if its error is permanent, or if it alone
// fails while later ones of its topic pass.
func (b *batch) send(ctx context.Context) error {
	var suspects []*suspect
	passed := 0
	for _, topic := range b.topicOrder {
		p := publication{b: b, topic: topic, held: map[string]bool{}}
		p.halves(ctx, 0, len(b.topics[topic]))
		for _, s := range p.suspects {
			s.alone = IsPermanent(s.err) || p.passed > s.passedBefore && s.stillFails(ctx, b.d.pub)
		}
		passed += p.passed
		suspects = append(suspects, p.suspects...)
	}
	var broken error
	for _, s := range suspects {
		switch {
		case s.alone && s.sending.err == nil:
			s.sending.err = s.err
			b.poison = append(b.poison, s.sending)
		case !s.alone && s.sending.open > 0:
			broken = fmt.Errorf("publish to %s: %w", s.topic, s.err)
		}
	}
	if broken != nil && passed > 0 { // others need not wait for this topic
		b.d.cfg.Logger.Warn("dispatcher: a topic does not take its messages; will try again", "error", broken)
		return nil
	}
	return broken
}

// publication is the part of a batch that goes to one topic.
type publication struct {
	b        *batch
	topic    string
	passed   int
	suspects []*suspect
	held     map[string]bool // ordering keys of which nothing more may go out
	failing  int             // suspects since something last passed
	since    time.Time       // the first failure of them
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
		if err := pub.Publish(s.topic, s.msg); err == nil {
			s.sending.take(s.topic)
			return false
		}
	}
	return true
}

// halves publishes messages from i up to j, and if that fails, each half of
// them.
func (p *publication) halves(ctx context.Context, i, j int) {
	sendings, msgs := p.b.topics[p.topic], p.b.messages[p.topic]
	if i == j || p.stopped || ctx.Err() != nil {
		return
	}
	batch, sent := msgs[i:j], sendings[i:j]
	if len(p.held) > 0 {
		batch, sent = p.withoutHeld(i, j)
	}
	if len(batch) == 0 {
		return
	}
	for _, m := range batch {
		m.SetContext(ctx)
	}
	err := p.b.d.pub.Publish(p.topic, batch...)
	if err == nil {
		p.passed += len(batch)
		p.failing, p.since = 0, time.Time{}
		for _, s := range sent {
			s.take(p.topic)
		}
		return
	}
	if p.since.IsZero() {
		p.since = time.Now()
	}
	if len(batch) == 1 {
		p.failing++
		p.suspects = append(p.suspects, &suspect{sending: sent[0], topic: p.topic, msg: batch[0], err: err, passedBefore: p.passed})
		if key := sent[0].row.OrderingKey; sent[0].ordered && key != "" {
			p.held[key] = true
		}
	}
	if p.failing >= maxSuspects || time.Since(p.since) > maxProbing {
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
		if s := p.b.topics[p.topic][k]; !p.held[s.row.OrderingKey] || !s.ordered {
			batch = append(batch, p.b.messages[p.topic][k])
			sent = append(sent, s)
		}
	}
	return batch, sent
}
