package eventing_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// What comes over the broker is a version, or none: nothing else is stored or shown.
func TestRoutingVersionOfMessages(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                       "",
		"0123456789ab":           "0123456789ab",
		"Straße 2 (draft)":       "Straße 2 (draft)",
		strings.Repeat("x", 64):  strings.Repeat("x", 64),
		strings.Repeat("x", 65):  "",
		strings.Repeat("ß", 33):  "",
		"a\nb":                   "",
		"a\x00b":                 "",
		"a\xffb":                 "",
		"a\u200bb":               "",
		"\x1b[31mred":            "",
		strings.Repeat("\n", 10): "",
	} {
		store, got := memstore.New(), eventing.CurrentAttempt{}
		c, err := eventing.NewConsumer(store, func(ctx context.Context, _ eventing.Envelope) error {
			got, _ = eventing.AttemptFromContext(ctx)
			return nil
		}, eventing.ConsumerConfig{Name: "billing", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		m := parcelOf(t, "e1")
		m.Metadata.Set(eventing.MetadataRoutingVersion, said)
		if err := c.Receive(context.Background(), m); err != nil || got.Number != 1 {
			t.Errorf("%q: a bad version is no error: %v", said, err)
		}
		if got.RoutingVersion != want || eventing.RoutingVersion(m.Metadata) != want {
			t.Errorf("the version of %q is %q, want %q", said, got.RoutingVersion, want)
		}
	}
}

// changing is a routing table that is exchanged while it is asked: its topics are named after the
// version that they belong to.
type changing struct {
	version int
	until   int // this one, it changes at each question
	prefix  string
}

func (c *changing) topic() string { return fmt.Sprint(c.prefix, c.version) }

func (c *changing) Route(string) ([]eventing.Route, bool) {
	route, _ := c.Consumer("billing")
	if c.version < c.until {
		c.version++
	}
	return []eventing.Route{route}, true
}

func (c *changing) Consumer(name string) (eventing.Route, bool) {
	return eventing.Route{Consumer: name, Topic: c.topic()}, true
}

func (c *changing) Version() string { return c.topic() }

// versionLog is a broker that takes everything, and takes note of what it is.
type versionLog struct {
	topics   []string
	versions []string
}

func (r *versionLog) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		r.topics = append(r.topics, topic)
		r.versions = append(r.versions, m.Metadata.Get(eventing.MetadataRoutingVersion))
	}
	return nil
}

func (r *versionLog) Close() error { return nil }

// dispatchTypes dispatches one event of each of these types in one batch.
func dispatchTypes(t *testing.T, routes eventing.Routes, types ...string) *versionLog {
	t.Helper()
	ctx, store, broker := context.Background(), memstore.New(), &versionLog{}
	outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{})
	d, err := eventing.NewDispatcher(store, broker, routes, eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	var events []eventing.Appendable
	for _, name := range types {
		e := eventing.New("", "", parcel{1})
		e.Type = name
		events = append(events, e)
	}
	if err := outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DispatchOnce(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.Run(canceled(ctx)); err != nil { // gives the leases back
		t.Fatal(err)
	}
	return broker
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

// A table that is exchanged in the middle of a batch is not mixed with the one before.
func TestRoutingVersionIsOfOneTable(t *testing.T) {
	t.Parallel()
	got := dispatchTypes(t, &changing{prefix: "v", until: 2}, "a", "b", "c", "a")
	want := []string{"v2", "v2", "v2", "v2"}
	if !slices.Equal(got.topics, want) || !slices.Equal(got.versions, want) {
		t.Errorf("the batch is routed to %v, and says %v", got.topics, got.versions)
	}
}

// One that never stays the same has no version, but events go on.
func TestRoutingVersionOfARestlessTable(t *testing.T) {
	t.Parallel()
	got := dispatchTypes(t, &changing{prefix: "v", until: 1 << 30}, "a", "b")
	if len(got.topics) != 2 || !slices.Equal(got.versions, []string{"", ""}) {
		t.Errorf("the batch is routed to %v, and says %q", got.topics, got.versions)
	}
}

// Nor has one whose version is none, or a table that has no versions.
func TestRoutingVersionThatIsNone(t *testing.T) {
	t.Parallel()
	for _, routes := range []eventing.Routes{&changing{prefix: "v\n"}, struct{ eventing.Routes }{&changing{prefix: "v"}}} {
		if got := dispatchTypes(t, routes, "a"); !slices.Equal(got.versions, []string{""}) {
			t.Errorf("the message says %q", got.versions)
		}
	}
}
