package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/middleware"
	"github.com/waybill-go/waybill/router"
)

// poison is a poison topic of its own.
func poison(pub message.Publisher) router.Config {
	return router.Config{
		Poison: router.Poison{Publisher: pub, Topic: "poison"}, Logger: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 },
	}
}

func sendPlaced(t *testing.T, broker message.Publisher, topic, id, number string) {
	t.Helper()
	m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
		Header:  eventing.Header{ID: id, Type: "orderPlaced", OccurredAt: jan1, CorrelationID: "c", SchemaVersion: 1},
		Payload: json.RawMessage(fmt.Sprintf(`{"Number":%s}`, number)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Publish(topic, m); err != nil {
		t.Fatal(err)
	}
}

// Retries in the process, then the poison topic; one event's trouble is not another's.
func TestStorelessConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := inproc.New(inproc.Config{})
		cfg, exporter := poison(broker), tracetest.NewInMemoryExporter()
		cfg.Subscriber = broker
		cfg.Tracer = middleware.NewTracing(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), "")
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var handled []string
		began, attempts := time.Now(), map[string]int{}
		err = router.Handle(r, "mail", func(ctx context.Context, e eventing.Event[orderPlaced]) error {
			mu.Lock()
			defer mu.Unlock()
			attempts[e.ID]++
			switch {
			case e.Payload.Number == "poisonous":
				return errBusy
			case e.Payload.Number == "flaky" && attempts[e.ID] == 1:
				return errBusy
			}
			handled = append(handled, fmt.Sprintf("%s at %v by %s", e.ID, time.Since(began), eventing.CausationID(ctx)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		letters, err := broker.Subscribe(ctx, "poison")
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error)
		go func() { stopped <- r.Run(ctx) }()
		for i, number := range []string{`"poisonous"`, `"flaky"`, `"7"`, `8`} {
			sendPlaced(t, broker, "mail", fmt.Sprintf("e%d", i), number)
		}
		var dead []string
		for range 2 {
			m := <-letters
			dead = append(dead, m.Metadata.Get("event_id")+" "+m.Metadata.Get(middleware.MetadataReasonCode)+" "+m.Metadata.Get("handler_poisoned")+" "+
				m.Metadata.Get("topic_poisoned")+" "+m.Metadata.Get("subscriber_poisoned"))
			m.Ack()
		}
		if want := []string{"e3 PAYLOAD_MALFORMED mail mail inproc.Broker", "e0 RETRIES_EXHAUSTED mail mail inproc.Broker"}; !slices.Equal(dead, want) {
			t.Errorf("the poison topic has %q, want %q", dead, want)
		}
		if want := []string{"e2 at 0s by e2", "e1 at 1s by e1"}; !slices.Equal(handled, want) || attempts["e0"] != 5 || attempts["e3"] != 0 {
			t.Errorf("handled %q, want %q; attempts %v", handled, want, attempts)
		}
		if n := len(exporter.GetSpans()); n != 5+2+1+1 {
			t.Errorf("there are %d spans, one is to be of each attempt", n)
		}
		stop()
		if err := errors.Join(<-stopped, broker.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A shutdown in the middle of a retry's wait: neither acked nor dead, and the next
// process handles it.
func TestStorelessShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := inproc.New(inproc.Config{})
		var attempts []time.Duration
		began := time.Now()
		for life := range 2 {
			cfg := poison(broker)
			cfg.Subscriber = broker
			r, err := router.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := router.Handle(r, "mail", func(context.Context, eventing.Event[orderPlaced]) error {
				if attempts = append(attempts, time.Since(began)); life == 0 {
					return errBusy
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if life == 0 {
				sendPlaced(t, broker, "mail", "e1", `"7"`)
			}
			ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
			stop()
		}
		if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(attempts, want) {
			t.Errorf("the attempts are at %v, want %v", attempts, want)
		}
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStorelessRefuses(t *testing.T) {
	t.Parallel()
	declare := func(c router.Consumer) func(r *router.Router) error {
		return func(r *router.Router) error { return r.AddConsumer(c) }
	}
	for says, register := range map[string]func(r *router.Router) error{
		"use Handle, or give the router a store": func(r *router.Router) error {
			return router.HandleTx(r, "mail", func(context.Context, *memstore.Tx, eventing.Event[orderPlaced]) error { return nil })
		},
		"Ordered needs a store":      declare(router.Consumer{Name: "mail", Policy: eventing.Policy{Ordered: true}}),
		"exactly_once needs a store": declare(router.Consumer{Name: "mail", Policy: eventing.Policy{Guarantee: eventing.ExactlyOnce}}),
		"a consumer with a store":    declare(router.Consumer{Name: "mail", Policy: eventing.Policy{Retry: eventing.RetryPolicy{Base: time.Minute}}}),
		"OnConclude needs a store": declare(router.Consumer{Name: "mail", OnConclude: func(context.Context, any, eventing.Conclusion) error {
			return nil
		}}),
		"reads the poison topic": declare(router.Consumer{Name: "mail", Topic: "poison"}),
		"reads the poison topic poison": func(r *router.Router) error { // it has no declaration
			if err := router.Handle(r, "poison", func(context.Context, eventing.Event[orderPlaced]) error { return nil }); err != nil {
				return err
			}
			return r.Run(context.Background())
		},
	} {
		broker := inproc.New(inproc.Config{})
		cfg := poison(broker)
		cfg.Subscriber = broker
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := register(r); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error must say %q: %v", says, err)
		}
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestStoreOrPoison(t *testing.T) {
	t.Parallel()
	broker := inproc.New(inproc.Config{})
	defer broker.Close()
	both := poison(broker)
	both.Store = memstore.New()
	for says, cfg := range map[string]router.Config{
		"Config.Store is needed, or Config.Poison": {},
		"exclude each other":                       both,
		"needs a publisher and a topic":            {Poison: router.Poison{Topic: "poison"}},
		"Poison needs a publisher":                 {Poison: router.Poison{Publisher: broker}},
	} {
		if _, err := router.New(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("the error must say %q: %v", says, err)
		}
	}
}
