package eventing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// publish sends claimed rows and settles those that went out. It returns how many rows
// it dealt with.
func (w *worker) publish(ctx context.Context, rows []OutboxRow) (n int, err error) {
	b := newBatch(w, rows)
	w.stalled = false
	var unfit []failure
	held := map[string]bool{} // keys of which nothing more may go out
	for i := range rows {
		row := &rows[i]
		if held[row.OrderingKey] {
			continue
		}
		reason, err := b.add(row)
		if err == nil {
			continue
		}
		f := newFailure(row, b.plan(row).ordered, reason, err)
		unfit = append(unfit, f)
		if f.holdKey {
			held[row.OrderingKey] = true
		}
	}
	if cp, ok := w.d.pub.(CompletionPublisher); ok {
		n, err := w.failAll(ctx, b.afterOthers(unfit))
		if err != nil {
			return n, err
		}
		launched, err := b.launch(ctx, cp)
		unrouted, settleErr := w.d.settle(ctx, b.unrouted)
		if err == nil {
			err = settleErr
		}
		return n + launched + unrouted, err
	}
	broken := b.send(ctx)
	out := b.sent()
	w.taken = b.halfTaken()
	if err := w.join(); err != nil {
		return n, err
	}
	if len(out) == len(rows) { // all is well: nobody has to wait
		w.settleLater(ctx, out)
		return len(rows), nil
	}
	n, err = w.d.settle(ctx, out)
	if err != nil {
		return n, err
	}
	failed, err := w.failAll(ctx, append(b.afterOthers(unfit), b.poison...))
	return n + failed, cmp.Or(err, broken)
}

// sending is a row on its way out.
type sending struct {
	row     *OutboxRow
	msgs    []outgoing
	first   [1]outgoing // memory for msgs: most rows have one
	open    int         // topics that have not taken it yet
	taken   []string    // those that have
	ordered bool
	early   bool // before its turn: its ordered consumers have yet to get it
	err     error
}

// batch is what one pass publishes.
type batch struct {
	w          *worker
	expediting bool            // only what goes to unordered consumers
	plans      map[string]plan // by event type
	replays    map[string]plan // by consumer
	sendings   []*sending
	slab       []sending // memory for sendings
	messages   *messageSlab
	unrouted   []OutboxRow // of types that are known to go nowhere
	suspects   []*suspect
	poison     []failure
	failing    time.Time // when the broker began to take nothing
}

// topicBatch is what goes to one topic.
type topicBatch struct {
	topic    string
	sendings []*sending
	messages []*message.Message
}

const slabSize = 64

func newBatch(w *worker, rows []OutboxRow) *batch {
	b := &batch{w: w, plans: map[string]plan{}, replays: map[string]plan{}, sendings: make([]*sending, 0, len(rows))}
	if _, ok := w.d.pub.(BatchPublisher); ok {
		b.messages = new(messageSlab)
	}
	if versioned, ok := w.d.routes.(VersionedRoutes); ok {
		b.planAll(versioned, rows)
	}
	return b
}

// planTries is how often rows are planned for until the routing table stays the same
// meanwhile. One that changes all the time has no version.
const planTries = 3

// planAll plans for rows by one version of the routing table, which they get.
func (b *batch) planAll(routes VersionedRoutes, rows []OutboxRow) {
	agreed := ""
	for range planTries {
		version := routes.Version()
		clear(b.plans)
		clear(b.replays)
		for i := range rows {
			b.plan(&rows[i])
		}
		if version == routes.Version() {
			agreed = checkedVersion(version)
			break
		}
	}
	for i := range rows {
		rows[i].version = agreed
	}
}

// plan returns the plan of a row's type, or of its consumer if it has one.
func (b *batch) plan(row *OutboxRow) plan {
	if row.Consumer != "" {
		p, ok := b.replays[row.Consumer]
		if !ok {
			r, known := b.w.d.routes.Consumer(row.Consumer)
			p = newPlan([]Route{r}, known)
			b.replays[row.Consumer] = p
		}
		return p
	}
	p, ok := b.plans[row.EventType]
	if !ok {
		p = newPlan(b.w.d.routes.Route(row.EventType))
		b.plans[row.EventType] = p
	}
	return p
}

// add routes a row. The reason belongs to the error.
func (b *batch) add(row *OutboxRow) (ReasonCode, error) {
	p := b.plan(row)
	if !p.routed {
		return ReasonNoRoute, errNoRoute
	}
	if len(p.targets) == 0 {
		b.unrouted = append(b.unrouted, *row)
		return "", nil
	}
	s := b.sending(row, p)
	for i := range p.targets {
		t := &p.targets[i]
		topic := t.name(row.Partition)
		switch {
		case b.expediting && t.ordered, row.Lane == Expedited && !t.ordered, slices.Contains(s.taken, topic):
			continue
		}
		m, err := t.message(row, b.w.d.inFlight != nil, b.messages)
		if err != nil {
			return ReasonEnvelopeMalformed, err
		}
		s.msgs = append(s.msgs, outgoing{topic, m})
	}
	if b.w.d.inFlight == nil {
		s.open = len(s.msgs)
	}
	b.sendings = append(b.sendings, s)
	return "", nil
}

// byTopic returns what goes to each topic, in the order of the rows.
func (b *batch) byTopic() []*topicBatch {
	var topics []*topicBatch
	known := map[string]*topicBatch{}
	for _, s := range b.sendings {
		for _, o := range s.msgs {
			t := known[o.topic]
			if t == nil {
				t = &topicBatch{topic: o.topic}
				known[o.topic] = t
				topics = append(topics, t)
			}
			t.sendings = append(t.sendings, s)
			t.messages = append(t.messages, o.msg)
		}
	}
	return topics
}

func (b *batch) sending(row *OutboxRow, p plan) *sending {
	if s := b.w.d.inFlight.rejoin(row); s != nil {
		return s
	}
	if len(b.slab) == 0 {
		b.slab = make([]sending, slabSize)
	}
	s := &b.slab[0]
	b.slab = b.slab[1:]
	s.row, s.ordered, s.msgs = row, p.ordered, s.first[:0]
	for _, taken := range [][]string{b.w.taken[row.Seq], b.w.expedited[row.Seq]} {
		s.taken = append(s.taken, taken...)
	}
	return s
}

// sent returns the rows that are out.
func (b *batch) sent() []OutboxRow {
	rows := make([]OutboxRow, 0, len(b.unrouted)+len(b.sendings))
	rows = append(rows, b.unrouted...)
	for _, s := range b.sendings {
		if s.open == 0 {
			rows = append(rows, *s.row)
		}
	}
	return rows
}

// halfTaken returns, of the rows that are not all out, the topics that have them.
func (b *batch) halfTaken() map[int64][]string {
	half := map[int64][]string{}
	for _, s := range b.sendings {
		if s.open > 0 && len(s.taken) > 0 {
			half[s.row.Seq] = s.taken
		}
	}
	return half
}

// take records that a topic has the row's message.
func (s *sending) take(topic string) {
	s.open--
	s.taken = append(s.taken, topic)
}

// send publishes to a broker that answers when it has the messages. Rows that it
// did not take stay pending, and no attempt is counted; the error says that it has
// taken none at all. A message is poison if its error is permanent, or if it alone
// fails while later ones of its topic pass; for a while, if the error may be of the moment.
func (b *batch) send(ctx context.Context) (broken error) {
	end := b.trace(ctx)
	passed := 0
	if !b.atOnce(ctx) {
		passed, broken = b.topicByTopic(ctx)
	}
	if b.w.d.cfg.Tracer != nil {
		end(b.unpublished(ctx, broken))
	}
	if broken != nil && passed > 0 { // others need not wait for this topic
		b.w.stalled = true
		b.w.d.cfg.Logger.Warn("dispatcher: a topic does not take its messages; will try again", "error", broken)
		return nil
	}
	return broken
}

// topicByTopic publishes each topic on its own, and returns how many messages passed.
func (b *batch) topicByTopic(ctx context.Context) (passed int, broken error) {
	for _, t := range b.byTopic() {
		p := publication{b: b, topicBatch: t, held: map[string]bool{}}
		p.halves(ctx, 0, len(p.messages))
		for _, s := range p.suspects {
			s.alone = IsPermanent(s.err) ||
				p.passed > s.passedBefore && s.stillFails(ctx, b.w.d.pub) && b.w.suspicions.lasting(s.sending.row.Seq, s.err)
		}
		passed += p.passed
		b.suspects = append(b.suspects, p.suspects...)
		if p.stopped && len(p.suspects) == 0 {
			broken = fmt.Errorf("publish to %s: %w", t.topic, p.err)
		}
	}
	for _, s := range b.suspects {
		switch {
		case s.alone && s.sending.err == nil:
			s.sending.err = s.err
			b.poison = append(b.poison, newFailure(s.sending.row, s.sending.ordered, ReasonUnpublishable, s.err))
		case !s.alone && s.sending.open > 0:
			broken = fmt.Errorf("publish to %s: %w", s.topic, s.err)
		}
	}
	b.w.suspicions.forget(b.sendings)
	return passed, broken
}

// atOnce publishes all topics in one go, if the publisher can. If that fails, each
// topic is on its own, and for a while.
func (b *batch) atOnce(ctx context.Context) bool {
	pub, ok := b.w.d.pub.(BatchPublisher)
	if !ok || time.Now().Before(b.w.apart) {
		return false
	}
	topics := make([]string, 0, len(b.sendings))
	msgs := make([]*message.Message, 0, len(b.sendings))
	for _, s := range b.sendings {
		for _, o := range s.msgs {
			topics = append(topics, o.topic)
			msgs = append(msgs, o.msg)
		}
	}
	if err := pub.PublishBatch(ctx, topics, msgs); err != nil {
		b.w.apart = time.Now().Add(apart)
		b.w.d.cfg.Logger.Debug("dispatcher: a batch of several topics was not published at once; topic by topic now", "error", err)
		return false
	}
	for _, s := range b.sendings {
		s.open = 0
		if b.expediting {
			for _, o := range s.msgs {
				s.taken = append(s.taken, o.topic)
			}
		}
	}
	return true
}

// apart is how long topics are on their own after they could not be published at once:
// those that have taken their messages would get them twice in every pass.
const apart = time.Second
