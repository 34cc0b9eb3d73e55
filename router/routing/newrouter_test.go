package routing_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/router/routing"
)

func TestNewWantsWhatTheFileNeeds(t *testing.T) {
	t.Parallel()
	good := func() routing.Config {
		return routing.Config{Lookups: map[string]routing.LookupFunc{"guest": phone}, Upcasters: []routing.Upcaster{guest}}
	}
	action := func(context.Context, any, eventing.Conclusion) error { return nil }
	for name, test := range map[string]struct {
		change func(*routing.Config)
		want   string
	}{
		"a lookup":                  {func(c *routing.Config) { c.Lookups = nil }, "lookup guest (routes.yaml:25) has no function"},
		"no lookup of another name": {func(c *routing.Config) { c.Lookups["host"] = phone }, "Config.Lookups has host, which routes.yaml does not declare"},
		"an upcaster":               {func(c *routing.Config) { c.Upcasters = nil }, "booked has schemas of versions 1 and 2, and no upcaster between them"},
		"one upcaster only":         {func(c *routing.Config) { c.Upcasters = append(c.Upcasters, guest) }, "two upcasters of booked from version 1"},
		"no upcaster from the last": {func(c *routing.Config) { c.Upcasters[0].From = 2 }, "nothing to bring booked from version 2 to"},
		"no upcaster of others":     {func(c *routing.Config) { c.Upcasters[0].EventType = "lost" }, "nothing to bring lost from version 1 to"},
		"an upcaster's function":    {func(c *routing.Config) { c.Upcasters[0].Upcast = nil }, "the upcaster of booked from version 1 has no function"},
		"no consumer of another name": {func(c *routing.Config) {
			c.Exhausted = map[string]map[string]eventing.Action{"post": {"fallback": action}}
		}, "Config.Exhausted has consumer post"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := good()
			test.change(&cfg)
			_, err := routing.New(router.Config{Store: memstore.New()}, table(t, bookings), cfg)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v; want %s", err, test.want)
			}
		})
	}
	if _, err := routing.New(router.Config{Store: memstore.New()}, table(t, bookings), good()); err != nil {
		t.Error(err)
	}
	if _, err := routing.New(router.Config{}, table(t, bookings), good()); err == nil || !strings.Contains(err.Error(), "Store is needed") {
		t.Errorf("without a store: %v", err)
	}
	bare := strings.Replace(bookings, "  left:\n    ledger: [{do: enter}]\n", "", 1)
	if _, err := routing.New(router.Config{Store: memstore.New()}, table(t, bare), good()); err == nil || !strings.Contains(err.Error(), "not fit to run") {
		t.Errorf("a ticked cell without an action would drop events: %v", err)
	}
}

func TestHandlersHaveToFitTheFile(t *testing.T) {
	t.Parallel()
	app, err := routing.New(router.Config{Store: memstore.New()}, table(t, bookings), routing.Config{
		Lookups: map[string]routing.LookupFunc{"guest": phone}, Upcasters: []routing.Upcaster{guest},
	})
	if err != nil {
		t.Fatal(err)
	}
	plain := func(context.Context, eventing.Event[json.RawMessage], routing.Action) error { return nil }
	inTx := func(context.Context, *memstore.Tx, eventing.Event[json.RawMessage], routing.Action) error { return nil }
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v; want %s", err, want)
		}
	}
	refused(app.Run(t.Context()), "actions without a handler: confirm of mail, count of ledger, enter of ledger")
	refused(routing.Handle(app, "mial", "confirm", plain), "declares no consumer mial (did you mean `mail`?)")
	refused(routing.Handle(app, "mail", "confrim", plain), "has no action confrim for mail (did you mean `confirm`?)")
	refused(routing.Handle(app, "ledger", "enter", plain), "exactly_once")
	refused(routing.HandleTx(app, "ledger", "enter", func(context.Context, string, eventing.Event[json.RawMessage], routing.Action) error { return nil }), "no transactions of type string")
	if err := routing.HandleTx(app, "ledger", "enter", inTx); err != nil {
		t.Fatal(err)
	}
	refused(routing.HandleTx(app, "ledger", "enter", inTx), "has a handler already")
	refused(routing.Handle(app, "ledger", "count", plain), "must all be transactional, or none")
	refused(app.Ready(), "confirm of mail, count of ledger:")
}

func TestOtherConsumersBesideTheTable(t *testing.T) {
	t.Parallel()
	app, err := routing.New(router.Config{Store: memstore.New()}, table(t, bookings), routing.Config{
		Lookups: map[string]routing.LookupFunc{"guest": phone}, Upcasters: []routing.Upcaster{guest},
	})
	if err != nil {
		t.Fatal(err)
	}
	other := func(context.Context, eventing.Event[json.RawMessage]) error { return nil }
	if err := router.Handle(app.Router, "statistics", other, router.On("booked", "weather")); err != nil {
		t.Fatal(err)
	}
	app.Ignore("noise")
	if err := routing.Handle(app, "mail", "confirm", func(context.Context, eventing.Event[json.RawMessage], routing.Action) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for eventType, want := range map[string][]string{"booked": {"mail", "ledger", "statistics"}, "left": {"ledger"}, "weather": {"statistics"}, "noise": nil} {
		routes, routed := app.Route(eventType)
		var got []string
		for _, r := range routes {
			got = append(got, r.Consumer)
		}
		if !routed || !slices.Equal(got, want) {
			t.Errorf("%s is routed to %v, %v; want %v", eventType, got, routed, want)
		}
	}
	if _, routed := app.Route("unknown"); routed {
		t.Error("an unknown type is routed: the table's consumers take all types, and yet only those of the matrix")
	}
	for eventType, want := range map[string]string{"weather": "statistics", "noise": ""} {
		x := app.Explain(t.Context(), eventing.Envelope{Header: eventing.Header{Type: eventType}})
		var got string
		for _, c := range x.Consumers {
			got += c.Consumer
		}
		if x.Unroutable != "" || got != want {
			t.Errorf("%s is explained as %+v; want it at %q", eventType, x, want)
		}
	}
	if x := app.Explain(t.Context(), eventing.Envelope{Header: eventing.Header{Type: "unknown"}}); x.Unroutable == "" {
		t.Errorf("an unknown type is explained as %+v", x)
	}
	if app.Version() != app.Table().Version() {
		t.Error("the version is not the table's")
	}
}
