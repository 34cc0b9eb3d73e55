package eventing

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// flights are the rows that a [CompletionPublisher] has and whose consumers have
// not all concluded.
type flights struct {
	landed chan struct{} // a hint that settle would find something
	use    func(partition, n int)

	mu        sync.Mutex
	rows      map[int64]*sending // by Seq
	complete  []*sending
	expedited []*sending // early, and their unordered consumers have concluded
}

func newFlights(use func(partition, n int)) *flights {
	return &flights{landed: make(chan struct{}, 1), use: use, rows: map[int64]*sending{}}
}

// seqs returns the rows in flight, by partition, how many they are, and how many more may
// go before their turn, which do not count among the former.
func (f *flights) seqs(batch int) (seqs map[int][]int64, n, early int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	seqs = map[int][]int64{}
	early = batch
	for seq, s := range f.rows {
		if s.early {
			early = max(0, early-1)
			continue
		}
		seqs[s.row.Partition] = append(seqs[s.row.Partition], seq)
		n++
	}
	return seqs, n, early
}

// has reports whether a row is in flight.
func (f *flights) has(seq int64) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows[seq] != nil
}

// keys returns the ordering keys of what is in flight.
func (f *flights) keys() map[string]bool {
	keys := map[string]bool{}
	if f == nil {
		return keys
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.rows {
		keys[s.row.OrderingKey] = true
	}
	return keys
}

// rejoin returns the row that has gone out before its turn, which has come.
func (f *flights) rejoin(row *OutboxRow) *sending {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.rows[row.Seq]
	if s != nil {
		s.row.version = row.version
		for _, o := range s.msgs {
			s.taken = append(s.taken, o.topic)
		}
		s.msgs = nil
	}
	return s
}

// take begins a flight, or its second part. It ends with one call of land for each
// message, and one more.
func (f *flights) take(s *sending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.open += len(s.msgs) + 1
	if f.rows[s.row.Seq] == nil {
		f.rows[s.row.Seq] = s
		f.use(s.row.Partition, 1)
		return
	}
	s.early = false // no sooner: what lands before the second part is out must not complete the row
}

// land records that one message of a row is done. A row of which one message
// failed is forgotten: it is still pending and will be claimed again.
func (f *flights) land(s *sending, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.open--
	if err != nil {
		s.err = err
	}
	switch {
	case s.open > 0:
		return
	case s.err != nil:
		f.forget(s)
	case s.early:
		f.expedited = append(f.expedited, s)
	default:
		f.complete = append(f.complete, s)
	}
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

func (f *flights) forget(s *sending) {
	if f.rows[s.row.Seq] == s {
		delete(f.rows, s.row.Seq)
		f.use(s.row.Partition, -1)
	}
}

// launch hands the batch to an in-process broker.
func (b *batch) launch(ctx context.Context, pub CompletionPublisher) (int, error) {
	f := b.w.d.inFlight
	end := b.trace(ctx)
	for _, s := range b.sendings {
		f.take(s)
	}
	var broken error
	unpublished := map[*message.Message]error{}
	for _, t := range b.byTopic() {
		byMessage := make(map[*message.Message]*sending, len(t.messages))
		for i, m := range t.messages {
			byMessage[m] = t.sendings[i]
		}
		done := func(m *message.Message, err error) { f.land(byMessage[m], err) }
		if err := pub.PublishWithCompletion(t.topic, done, t.messages...); err != nil {
			broken = fmt.Errorf("publish to %s: %w", t.topic, err)
			for i, s := range t.sendings {
				f.land(s, broken)
				unpublished[t.messages[i]] = broken
			}
		}
	}
	for _, s := range b.sendings {
		f.land(s, nil)
	}
	end(unpublished)
	if broken != nil {
		return 0, broken
	}
	return len(b.sendings), nil
}

// settleCompleted settles the rows whose consumers have concluded.
func (d *Dispatcher) settleCompleted(ctx context.Context) (int, error) {
	f := d.inFlight
	if f == nil {
		return 0, nil
	}
	f.mu.Lock()
	complete, expedited := f.complete, f.expedited
	f.complete, f.expedited = nil, nil
	f.mu.Unlock()
	n, err := d.settle(ctx, rowsOf(complete))
	if err == nil {
		f.done(complete, false)
		complete = nil
		err = d.mark(ctx, rowsOf(expedited))
	}
	if err == nil {
		f.done(expedited, true)
		return n, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete, f.expedited = append(f.complete, complete...), append(f.expedited, expedited...)
	return n, err
}

// done ends flights, but for those that have rejoined.
func (f *flights) done(settled []*sending, early bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range settled {
		if s.early == early && s.open == 0 {
			f.forget(s)
		}
	}
}

func rowsOf(sendings []*sending) []OutboxRow {
	rows := make([]OutboxRow, len(sendings))
	for i, s := range sendings {
		rows[i] = *s.row
	}
	return rows
}
