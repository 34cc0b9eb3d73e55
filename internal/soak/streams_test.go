//go:build unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
)

// uuidField is the field of a stream's entry that has the event's id.
const uuidField = "_watermill_message_uuid"

// delivery is an entry of a stream.
type delivery struct {
	event string
	at    time.Time // when Redis added it, in whole milliseconds
}

func deliveryOf(m redis.XMessage) (delivery, error) {
	text, _, _ := strings.Cut(m.ID, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	event, ok := m.Values[uuidField].(string)
	if err != nil || !ok {
		return delivery{}, fmt.Errorf("entry %s has the fields %v", m.ID, m.Values)
	}
	return delivery{event, time.UnixMilli(ms)}, nil
}

func (a *arena) ledgerStreams() []string {
	var all []string
	for p := range eventing.Partitions {
		all = append(all, eventing.PartitionTopic(a.topics+"ledger", p))
	}
	return all
}

func (a *arena) allStreams() []string {
	return append(a.ledgerStreams(), a.topics+"archive", a.topics+"pager")
}

// read returns all that is in a stream.
func (a *arena) read(stream string) []delivery {
	a.Helper()
	const page = 5000
	var all []delivery
	for next := "-"; ; {
		entries, err := a.redis.XRangeN(a.Context(), stream, next, "+", page).Result()
		if err != nil {
			a.Fatal(err)
		}
		for _, m := range entries {
			d, err := deliveryOf(m)
			if err != nil {
				a.Fatal(err)
			}
			all = append(all, d)
		}
		if len(entries) < page {
			return all
		}
		next = "(" + entries[len(entries)-1].ID
	}
}

// published is what streams have of each event.
type published struct {
	first  map[string]time.Time
	copies map[string]int
	order  map[string][]string // by stream: events in the order of their first deliveries
}

// readAll reads streams.
func (a *arena) readAll(streams ...string) published {
	a.Helper()
	p := published{first: map[string]time.Time{}, copies: map[string]int{}, order: map[string][]string{}}
	for _, stream := range streams {
		for _, d := range a.read(stream) {
			if p.copies[d.event]++; p.copies[d.event] == 1 {
				p.first[d.event] = d.at
				p.order[stream] = append(p.order[stream], d.event)
			}
		}
	}
	return p
}

// doubled is how many events there are copies of.
func (p published) doubled() (n int) {
	for _, copies := range p.copies {
		if copies > 1 {
			n++
		}
	}
	return n
}

// follower reads streams as they grow.
type follower struct {
	t testing.TB

	mu      sync.Mutex
	first   map[string]time.Time
	changed chan struct{} // closed when there is more
	err     error
}

// follow follows streams until the test ends.
func (a *arena) follow(streams ...string) *follower {
	a.Helper()
	f := &follower{t: a.T, first: map[string]time.Time{}, changed: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.end(f.read(ctx, a.redis, streams))
	}()
	a.Cleanup(func() {
		stop()
		<-ended
	})
	return f
}

func (f *follower) read(ctx context.Context, client *redis.Client, streams []string) error {
	last := make(map[string]string, len(streams))
	for _, stream := range streams {
		last[stream] = "0"
	}
	for ctx.Err() == nil {
		args := append([]string{}, streams...)
		for _, stream := range streams {
			args = append(args, last[stream])
		}
		found, err := client.XRead(ctx, &redis.XReadArgs{Streams: args, Count: 1000, Block: 50 * time.Millisecond}).Result()
		if errors.Is(err, redis.Nil) || ctx.Err() != nil {
			continue
		} else if err != nil {
			return err
		}
		for _, s := range found {
			last[s.Stream] = s.Messages[len(s.Messages)-1].ID
			if err := f.see(s.Messages); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *follower) see(entries []redis.XMessage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range entries {
		d, err := deliveryOf(m)
		if err != nil {
			return err
		}
		if _, ok := f.first[d.event]; !ok {
			f.first[d.event] = d.at
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
}

func (f *follower) end(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// await waits for an event's first delivery.
func (f *follower) await(event string, within time.Duration) (time.Time, error) {
	timeout := time.After(within)
	for {
		f.mu.Lock()
		at, ok := f.first[event]
		changed, err := f.changed, f.err
		f.mu.Unlock()
		if ok || err != nil {
			return at, err
		}
		select {
		case <-changed:
		case <-timeout:
			return at, fmt.Errorf("event %s has not been published within %v", event, within)
		}
	}
}

// without leaves some events out of the order.
func (p published) without(some func(event string) bool) published {
	for stream, events := range p.order {
		p.order[stream] = slices.DeleteFunc(events, some)
	}
	return p
}
