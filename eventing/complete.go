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

	mu       sync.Mutex
	rows     map[int64]*sending // by Seq
	complete []OutboxRow
}

func newFlights() *flights {
	return &flights{landed: make(chan struct{}, 1), rows: map[int64]*sending{}}
}

// seqs returns the rows in flight, and the partitions that have limit or more of
// them.
func (f *flights) seqs(limit int) (seqs []int64, full map[int]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	full = map[int]bool{}
	of := map[int]int{}
	for seq, s := range f.rows {
		seqs = append(seqs, seq)
		of[s.row.Partition]++
		if of[s.row.Partition] >= limit {
			full[s.row.Partition] = true
		}
	}
	return seqs, full
}

func (f *flights) take(s *sending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[s.row.Seq] = s
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
	if s.open > 0 {
		return
	}
	if s.err != nil {
		delete(f.rows, s.row.Seq)
	} else {
		f.complete = append(f.complete, s.row)
	}
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// launch hands the batch to an in-process broker.
func (b *batch) launch(pub CompletionPublisher) (int, error) {
	for _, s := range b.sendings {
		b.d.inFlight.take(s)
	}
	var broken error
	for _, topic := range b.topicOrder {
		byMessage := make(map[*message.Message]*sending, len(b.topics[topic]))
		for i, m := range b.messages[topic] {
			byMessage[m] = b.topics[topic][i]
		}
		done := func(m *message.Message, err error) { b.d.inFlight.land(byMessage[m], err) }
		if err := pub.PublishWithCompletion(topic, done, b.messages[topic]...); err != nil {
			broken = fmt.Errorf("publish to %s: %w", topic, err)
			for _, s := range b.topics[topic] {
				b.d.inFlight.land(s, broken)
			}
		}
	}
	if broken != nil {
		return 0, broken
	}
	return len(b.sendings), nil
}

// settleCompleted settles the rows whose consumers have concluded.
func (d *Dispatcher) settleCompleted(ctx context.Context) (int, error) {
	if d.inFlight == nil {
		return 0, nil
	}
	f := d.inFlight
	f.mu.Lock()
	rows := f.complete
	f.complete = nil
	f.mu.Unlock()
	n, err := d.settle(ctx, rows)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.complete = append(f.complete, rows...)
		return n, err
	}
	for _, r := range rows {
		delete(f.rows, r.Seq)
	}
	return n, nil
}
