package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/middleware"
	"github.com/waybill-go/waybill/router"
)

func TestOneTraceOverPostgresAndRedis(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testserver.PostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	client := redisClient(t, testserver.RedisURL(t))
	publisher, err := redisbroker.NewPublisher(client, redisbroker.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	subscriber, err := redisbroker.NewSubscriber(client, redisbroker.SubscriberConfig{CloseTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	oneTrace[pgx.Tx](t, pgstore.New(pool), publisher, subscriber)
}

func TestOneTraceInOneProcess(t *testing.T) {
	t.Parallel()
	broker := inproc.New(inproc.Config{})
	defer broker.Close()
	oneTrace[*memstore.Tx](t, memstore.New(), broker, broker)
}

type wholeStore[Tx any] interface {
	eventing.OutboxStore[Tx]
	eventing.DispatchStore
	eventing.ConsumerStore
}

// oneTrace appends events in a request of its own each and expects what comes of it to be its trace.
func oneTrace[Tx any](t *testing.T, store wholeStore[Tx], publisher message.Publisher, subscriber message.Subscriber) {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	tracing := middleware.NewTracing(tp, "")
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{Tracer: tracing})
	topics := eventing.NewID() // the server may be shared
	r := tracedRouter(t, store, outbox, router.Config{
		Store: store, Subscriber: subscriber, Tracer: tracing, Holder: "here", PollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}, topics)
	d, err := eventing.NewDispatcher(store, publisher, r, eventing.DispatcherConfig{
		Tracer: tracing, Holder: "here", PollInterval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var engines sync.WaitGroup
	engines.Go(func() { _ = d.Run(ctx) }) // logs its errors
	engines.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer engines.Wait()
	defer cancel()
	for _, lane := range []eventing.Lane{"", eventing.Critical} {
		e := order("42", fmt.Sprintf("e-%s", lane))
		e.Lane = lane
		request, span := tp.Tracer("test").Start(ctx, "request")
		if err := outbox.InTx(request, func(tx Tx) error { return outbox.Append(request, tx, e) }); err != nil {
			t.Fatal(err)
		}
		span.End()
		want := strings.ReplaceAll(wantedTrace, "LEDGER", eventing.PartitionTopic("ledger", eventing.PartitionOf(e.OrderKey(), e.ID)))
		testkit.Eventually(t, 60*time.Second, func() error {
			if got := strings.ReplaceAll(tree(exporter.GetSpans(), span.SpanContext()), topics, ""); got != want {
				return fmt.Errorf("the trace of the lane %q is\n%s\nwant\n%s", lane, got, want)
			}
			return nil
		})
	}
}

// wantedTrace is an order's: the ledger appends what the pager gets, mail fails twice.
const wantedTrace = `request
. append
. . dispatch LEDGER
. . . send LEDGER
. . . . process ledger 1
. . . . . append
. . . . . . dispatch pager
. . . . . . . send pager
. . . . . . . . process pager 1
. . dispatch mail
. . . send mail
. . . . process mail 1: Error
. . process mail 2: Error, linked to process mail 1
. . process mail 3, linked to process mail 1, linked to process mail 2
`

func tracedRouter[Tx any](t *testing.T, store wholeStore[Tx], outbox *eventing.Outbox[Tx], cfg router.Config, topics string) *router.Router {
	t.Helper()
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	policy := eventing.Policy{Retry: eventing.RetryPolicy{Base: time.Millisecond}}
	var attempts atomic.Int64
	for _, err := range []error{
		r.AddConsumer(router.Consumer{Name: "ledger", Topic: topics + "ledger", Policy: eventing.Policy{Ordered: true}}),
		r.AddConsumer(router.Consumer{Name: "mail", Topic: topics + "mail", Policy: policy}),
		r.AddConsumer(router.Consumer{Name: "pager", Topic: topics + "pager", Policy: policy}),
		router.HandleTx(r, "ledger", func(ctx context.Context, tx Tx, e eventing.Event[orderPlaced]) error {
			return outbox.Append(ctx, tx, eventing.New("order", e.AggregateID, orderCancelled{}))
		}),
		router.HandleTx(r, "mail", func(context.Context, Tx, eventing.Event[orderPlaced]) error {
			if attempts.Add(1)%3 != 0 {
				return errBusy
			}
			return nil
		}),
		router.HandleTx(r, "pager", func(context.Context, Tx, eventing.Event[orderCancelled]) error { return nil }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// tree shows the spans of a trace from its root on, each with its attempt, status and links.
func tree(all tracetest.SpanStubs, root trace.SpanContext) string {
	names := map[trace.SpanID]string{}
	children := map[trace.SpanID][]tracetest.SpanStub{}
	for _, s := range all {
		if s.SpanContext.TraceID() != root.TraceID() {
			continue
		}
		name := s.Name
		for _, a := range s.Attributes {
			if a.Key == "waybill.attempt" {
				name += " " + a.Value.String()
			}
		}
		names[s.SpanContext.SpanID()] = name
		children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], s)
	}
	var below func(parent trace.SpanID, indent string) string
	below = func(parent trace.SpanID, indent string) string {
		var lines []string
		for _, s := range children[parent] {
			line := indent + names[s.SpanContext.SpanID()]
			if s.Status.Code != codes.Unset {
				line += ": " + s.Status.Code.String()
			}
			for _, l := range s.Links {
				line += ", linked to " + names[l.SpanContext.SpanID()]
			}
			lines = append(lines, line+"\n"+below(s.SpanContext.SpanID(), indent+". "))
		}
		slices.Sort(lines)
		return strings.Join(lines, "")
	}
	return below(trace.SpanID{}, "")
}
