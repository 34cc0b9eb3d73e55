package main

import (
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// tally counts what the consumers of this process did, as far as no table tells.
type tally struct {
	mu        sync.Mutex
	actions   map[[2]string]int // by consumer and action: handled without an error
	consumers map[string]*consumerTally
	alerts    []eventing.Conclusion
}

// consumerTally counts attempts and events of one consumer.
type consumerTally struct {
	processed, failed, parked, dead int
	// instead: dead, and dealt with by the fallback or the default.
	instead int
}

func newTally() *tally {
	return &tally{actions: map[[2]string]int{}, consumers: map[string]*consumerTally{}}
}

func (t *tally) did(consumer, action string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.actions[[2]string{consumer, action}]++
}

func (t *tally) of(consumer string, count func(*consumerTally)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.consumers[consumer]
	if c == nil {
		c = new(consumerTally)
		t.consumers[consumer] = c
	}
	count(c)
}

// observer tells the tally what is committed.
func (t *tally) observer() *eventing.Observer {
	return &eventing.Observer{
		Concluded: func(c eventing.Conclusion, _ time.Duration) {
			t.of(c.Consumer, func(n *consumerTally) {
				switch {
				case c.Err == nil:
					n.processed++
					return
				case c.State == eventing.StateDead:
					n.dead++
					if insteadOf[c.Consumer] != "" {
						n.instead++
					}
				}
				n.failed++
			})
		},
		Parked: func(consumer, _ string) { t.of(consumer, func(n *consumerTally) { n.parked++ }) },
		Alert: func(c eventing.Conclusion) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.alerts = append(t.alerts, c)
		},
	}
}
