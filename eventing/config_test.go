package eventing_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

func TestConfigsAreChecked(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	dispatcher := func(c eventing.DispatcherConfig) error {
		_, err := eventing.NewDispatcher(store, publisherFunc(nil), routesOf(""), c)
		return err
	}
	if _, err := eventing.NewDispatcher(store, nil, nil, eventing.DispatcherConfig{}); err == nil {
		t.Error("a dispatcher without a publisher and routes")
	}
	if _, err := eventing.NewConsumer(store, nil, eventing.ConsumerConfig{Name: "c"}); err == nil {
		t.Error("a consumer without a handler")
	}
	pruner := func(c eventing.PrunerConfig) error {
		_, err := eventing.NewPruner(store, c)
		return err
	}
	consumer := func(c eventing.ConsumerConfig) error {
		_, err := eventing.NewConsumer(store, func(context.Context, eventing.Envelope) error { return nil }, c)
		return err
	}
	for _, c := range []struct {
		says string
		err  error
	}{
		{"", dispatcher(eventing.DispatcherConfig{})},
		{"BatchSize", dispatcher(eventing.DispatcherConfig{BatchSize: -1})},
		{"BatchSize", dispatcher(eventing.DispatcherConfig{BatchSize: 10_001})},
		{"PollInterval", dispatcher(eventing.DispatcherConfig{PollInterval: -1})},
		{"LeaseTTL", dispatcher(eventing.DispatcherConfig{LeaseTTL: time.Millisecond})},
		{"DeadLetterRetention", dispatcher(eventing.DispatcherConfig{DeadLetterRetention: -1})},
		{"", pruner(eventing.PrunerConfig{})},
		{"SentRetention", pruner(eventing.PrunerConfig{SentRetention: -1})},
		{"", consumer(eventing.ConsumerConfig{Name: "c"})},
		{"name", consumer(eventing.ConsumerConfig{})},
		{"name", consumer(eventing.ConsumerConfig{Name: strings.Repeat("c", 256)})},
		{"Timeout", consumer(eventing.ConsumerConfig{Name: "c", Policy: eventing.Policy{Timeout: -1}})},
	} {
		if (c.err == nil) != (c.says == "") || c.err != nil && !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("want an error that names %q, got %v", c.says, c.err)
		}
	}
}

func TestActsNeedWhoAndWhy(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := eventing.NewDeadLetters(memstore.New())
	long := strings.Repeat("x", 5000)
	for name, err := range map[string]error{
		"a review by nobody":     d.Review(ctx, eventing.Target{EventID: "e1"}, " ", ""),
		"a replay by nobody":     d.Replay(ctx, eventing.Target{EventID: "e1"}, "", ""),
		"a discard by nobody":    d.Discard(ctx, eventing.Target{EventID: "e1"}, "", "obsolete"),
		"a discard without why":  d.Discard(ctx, eventing.Target{EventID: "e1"}, "ann", " "),
		"a note without end":     d.Review(ctx, eventing.Target{EventID: "e1"}, "ann", long),
		"a name without end":     d.Review(ctx, eventing.Target{EventID: "e1"}, long, ""),
		"a replay of what isn't": d.Replay(ctx, eventing.Target{EventID: "e1"}, "ann", ""),
	} {
		if err == nil {
			t.Errorf("%s is refused", name)
		}
	}
}
