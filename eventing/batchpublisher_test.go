package eventing_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// pipeline is a broker that takes several topics at once.
type pipeline struct {
	*recorder
	batches, sizes []int // calls of recorder before each batch, and messages
	half           bool  // a batch that fails has been published in part
	fails          error
}

func (p *pipeline) PublishBatch(_ context.Context, topics []string, msgs []*message.Message) error {
	p.batches, p.sizes = append(p.batches, p.calls), append(p.sizes, len(msgs))
	if p.fails == nil {
		return p.take(topics, msgs)
	}
	if p.half {
		_ = p.take(topics[:len(msgs)/2], msgs[:len(msgs)/2])
	}
	return p.fails
}

// dispatchOnce makes a pass, of which the error is nil.
func dispatchOnce(t *testing.T, d *eventing.Dispatcher) int {
	t.Helper()
	n, err := d.DispatchOnce(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestABatchGoesAtOnce(t *testing.T) {
	t.Parallel()
	store, broker := memstore.New(), &pipeline{recorder: newRecorder()}
	var keys []string
	for p := range eventing.Partitions {
		keys = append(keys, keyIn(p))
	}
	fill(t, store, 10, keys...)
	d := newDispatcher(t, store, broker, eventing.DispatcherConfig{Concurrency: 1})
	if n := dispatchOnce(t, d); n != 320 {
		t.Errorf("a pass deals with a batch, not with %d rows", n)
	}
	if !slices.Equal(broker.sizes, []int{640}) || broker.calls != 1 {
		t.Errorf("all topics of a batch go in one call, not in %v and %d", broker.sizes, broker.calls)
	}
	if len(broker.topics) != eventing.Partitions+1 || pending(t, store) != 0 {
		t.Errorf("each to its own; all is settled: %d topics, %d pending", len(broker.topics), pending(t, store))
	}
}

// TestABatchThatFailsGoesTopicByTopic has a broker that takes no batches for a while.
func TestABatchThatFailsGoesTopicByTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(), &pipeline{recorder: newRecorder(), half: true, fails: context.DeadlineExceeded}
		d := newDispatcher(t, store, broker, eventing.DispatcherConfig{Concurrency: 1})
		key := keyIn(7)
		fill(t, store, 4, key)
		dispatchOnce(t, d)
		if pending(t, store) != 0 || len(broker.batches) != 1 {
			t.Errorf("what could not go at once goes topic by topic; %d pending", pending(t, store))
		}
		if n := broker.published()[key+"/0003"]; n != 2 {
			t.Errorf("to each topic; the last event went to %d", n)
		}
		broker.fails = nil
		fill(t, store, 1, "later")
		dispatchOnce(t, d)
		if len(broker.batches) != 1 {
			t.Errorf("topics are on their own for a while: those that have taken their messages would get them in each pass")
		}
		<-time.After(time.Second)
		fill(t, store, 1, "at last")
		dispatchOnce(t, d)
		if len(broker.batches) != 2 || pending(t, store) != 0 {
			t.Errorf("and together again after that: %d batches", len(broker.batches))
		}
	})
}

// TestABatchWithPoison has one message that the broker never takes.
func TestABatchWithPoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, broker := memstore.New(), &pipeline{recorder: newRecorder()}
		d := newDispatcher(t, store, broker, eventing.DispatcherConfig{Concurrency: 1})
		sick := keyIn(7)
		well := sick
		for i := 0; well == sick || eventing.PartitionOf(well, "") != 7; i++ { // shares the topic
			well = fmt.Sprintf("w%d", i)
		}
		fill(t, store, 8, sick, well)
		broker.refuse[sick+"/0002"] = true
		for range 20 {
			if _, err := d.DispatchOnce(context.Background()); err != nil {
				t.Fatal(err)
			}
			<-time.After(300 * time.Millisecond)
		}
		letters := deadLetters(t, store)
		if len(letters) != 1 || letters[0].EventID != sick+"/0002" || letters[0].Reason != eventing.ReasonUnpublishable {
			t.Fatalf("what alone is not taken becomes a dead letter: %+v", letters)
		}
		topic := slices.Compact(slices.Clone(broker.topics[eventing.PartitionTopic("ledger", 7)]))
		var ofSick, ofWell []string
		for _, id := range topic {
			if id[:len(id)-5] == sick {
				ofSick = append(ofSick, id)
			} else {
				ofWell = append(ofWell, id)
			}
		}
		if want := []string{sick + "/0000", sick + "/0001"}; !slices.Equal(ofSick, want) {
			t.Errorf("of its key nothing passes it: %v", ofSick)
		}
		if len(ofWell) != 8 || !slices.IsSorted(ofWell) {
			t.Errorf("another key goes on, in order: %v", ofWell)
		}
		if n := pending(t, store); n != 5 {
			t.Errorf("what waits for the key is pending, and nothing else: %d", n)
		}
	})
}
