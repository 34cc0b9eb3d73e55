package cli_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// traced is what trace prints as JSON.
type traced struct {
	Events []struct {
		EventID        string `json:"event_id"`
		CourierEventID string `json:"courier_event_id"`
		Source         string
		TraceID        string `json:"trace_id"`
		Attempts       int    `json:"attempt_count"`
		Standing       string
		DueAt          time.Time `json:"due_at"`
		Steps          []struct {
			What, By, Message string
			Attempt           int
			BodyHash          string `json:"body_hash"`
		}
		Shipment *struct{ CurrentState string }
		Payload  json.RawMessage
	}
}

// steps are an event's, as words.
func (tr traced) steps(t *testing.T, i int) string {
	t.Helper()
	if len(tr.Events) <= i {
		t.Fatalf("%d events: %+v", len(tr.Events), tr)
	}
	var words []string
	for _, s := range tr.Events[i].Steps {
		words = append(words, s.What)
	}
	return strings.Join(words, " ")
}

// life is a database in which a test lets events get as far as it wants.
type life struct {
	*testing.T
	environment
	db    *backend.Backend
	shelf shelf
}

const hidden = "hidden-in-payload"

// accept takes an event in, as the intake does, and returns its envelope.
func (l life) accept(id, source string) eventing.Envelope {
	l.Helper()
	e := courier.Event{
		EventID: id, EventType: "scan", OccurredAt: noon, Source: source, IdempotencyKey: source + ":" + id, ReceivedAt: time.Now().Add(-time.Hour),
		TraceID: strings.Repeat("0", 32-len(id)) + id, Payload: json.RawMessage(`{"shipmentId":"shp_` + id + `","status":"picked_up","note":"` + hidden + `"}`),
		SignatureMeta: courier.SignatureMeta{Signature: "the-signature"},
	}
	taken := intake.New(intake.Config{Store: l.db.Receiver()})
	_, err := taken.Accept(l.Context(), e, courier.Payload{ShipmentID: "shp_" + id}, strings.Repeat("ab", 32))
	must(l.T, err)
	envelope, err := eventing.DecodeEnvelope(l.shelf.payload(l.T, courier.EventID(source, e.IdempotencyKey)))
	must(l.T, err)
	return envelope
}

// settled says that the broker has what is pending.
func (l life) settled(ago time.Duration) {
	l.Helper()
	l.shelf.settled(l.T, time.Now().Add(-ago))
}

func (l life) run(e eventing.Envelope, generation int) eventing.Run {
	l.Helper()
	encoded, err := eventing.EncodeEnvelope(e)
	must(l.T, err)
	_, run, err := l.db.Events.Arrive(l.Context(), eventing.Delivery{
		Consumer: worker.Consumer, EventID: e.ID, EventType: e.Type, Payload: encoded, Generation: generation,
	}, nil, time.Now())
	must(l.T, err)
	return run
}

// fails has the worker fail at an event.
func (l life) fails(e eventing.Envelope, generation int, state eventing.State) {
	l.Helper()
	run, now := l.run(e, generation), time.Now()
	f := eventing.Failure{
		Run: run, Now: now, State: state, Attempts: run.Attempts + 1, Stage: eventing.StageHandle, Reason: eventing.ReasonRetriesExhausted, Message: "no answer",
		History: append(slices.Clone(run.History), eventing.Attempt{
			Attempt: run.Attempts + 1, At: now, Outcome: "failed", ErrorCode: eventing.ReasonTimeout, ErrorMessage: "no answer\x1b[2J",
		}),
		DeadLetterUntil: now.Add(time.Hour),
	}
	if state == eventing.StateRetrying {
		f.DueAt = now.Add(time.Hour)
	}
	must(l.T, l.db.Events.Fail(l.Context(), f))
}

// succeeds has the worker apply an event.
func (l life) succeeds(e eventing.Envelope, generation int) {
	l.Helper()
	var sent courier.Event
	must(l.T, json.Unmarshal(e.Payload, &sent))
	p, err := courier.DecodePayload(sent.Payload)
	must(l.T, err)
	run := l.run(e, generation)
	arrival, now := courier.Arrival{EnvelopeID: e.ID, Attempt: run.Attempts + 1, Event: sent, Payload: p}, time.Now()
	must(l.T, l.db.Events.Succeed(l.Context(), eventing.Success{
		Run: run, Now: now, InboxUntil: now.Add(time.Hour), DeadLetterUntil: now.Add(time.Hour),
		Effect: func(ctx context.Context, tx any) error { return l.shelf.process(ctx, tx, arrival, now) },
	}))
}

func TestTrace(t *testing.T) {
	t.Parallel()
	eachGateway(t, func(t *testing.T, e environment, b *backend.Backend, s shelf) { traceStates(life{t, e, b, s}) })
}

func traceStates(l life) {
	letters := eventing.NewDeadLetters(l.db.Events)
	dead := func(l life, id string) (eventing.Envelope, eventing.Target) {
		e := l.accept(id, "courier-x")
		l.settled(time.Hour)
		l.fails(e, 0, eventing.StateDead)
		return e, eventing.Target{EventID: e.ID, Consumer: worker.Consumer}
	}
	for _, test := range []struct {
		id, steps, standing, next string
		live                      func(l life, id string)
	}{
		{"fresh", "accepted appended", "pending", "gateway outbox stats", func(l life, id string) { l.accept(id, "courier-x") }},
		{"in-flight", "accepted appended sent", "in_flight", "on its way", func(l life, id string) {
			l.accept(id, "courier-x")
			l.settled(0)
		}},
		{"lost", "accepted sent appended", "missing", "gateway outbox requeue --event-id ", func(l life, id string) {
			l.accept(id, "courier-x")
			l.settled(10 * time.Minute)
		}},
		{"processed", "accepted appended sent applied processed", "processed", "nothing", func(l life, id string) {
			e := l.accept(id, "courier-x")
			l.settled(0)
			l.succeeds(e, 0)
		}},
		{"retrying", "accepted appended sent attempt attempt", "retrying", "tried again by itself at 20", func(l life, id string) {
			e := l.accept(id, "courier-x")
			l.settled(0)
			l.fails(e, 0, eventing.StateRetrying)
			l.fails(e, 0, eventing.StateRetrying)
		}},
		{"parked", "accepted appended sent", "parked", "gateway dlq list", func(l life, id string) {
			e := l.accept(id, "courier-x")
			l.settled(0)
			l.fails(e, 0, eventing.StateRetrying)
			l.shelf.park(l.T, e.ID)
		}},
		{"dead", "accepted sent appended attempt died reviewed", "dead", "gateway dlq show ", func(l life, id string) {
			_, target := dead(l, id)
			must(l.T, letters.Review(l.Context(), target, "anna", "asked the courier"))
		}},
		{"scheduled", "accepted sent appended attempt died scheduled", "dead", "replayed by itself at 20", func(l life, id string) {
			_, target := dead(l, id)
			must(l.T, letters.Schedule(l.Context(), target, time.Now().Add(time.Hour), "anna", "later"))
		}},
		{"on-its-way", "accepted sent appended attempt died replayed appended", "pending", "gateway outbox stats", func(l life, id string) {
			_, target := dead(l, id)
			must(l.T, letters.Replay(l.Context(), target, "anna", "fixed"))
		}},
		{"replayed", "accepted sent appended attempt died replayed appended sent applied processed", "processed", "nothing", func(l life, id string) {
			e, target := dead(l, id)
			must(l.T, letters.Replay(l.Context(), target, "anna", "fixed"))
			l.settled(0)
			l.succeeds(e, 1)
		}},
		{"discarded", "accepted sent appended attempt died discarded", "discarded", "nothing", func(l life, id string) {
			_, target := dead(l, id)
			must(l.T, letters.Discard(l.Context(), target, "anna", "a test"))
		}},
		{"pruned", "accepted", "missing", "gateway outbox requeue", func(l life, id string) {
			l.shelf.forget(l.T, l.accept(id, "courier-x").ID)
		}},
	} {
		l.Run(test.id, func(t *testing.T) {
			l := life{t, l.environment, l.db, l.shelf}
			test.live(l, test.id)
			got := object[traced](t, l.environment, "trace", test.id)
			if steps := got.steps(t, 0); steps != test.steps || got.Events[0].Standing != test.standing {
				t.Errorf("got %s, %s; want %s, %s", steps, got.Events[0].Standing, test.steps, test.standing)
			}
			first := got.Events[0]
			if first.CourierEventID != test.id || first.Source != "courier-x" || first.Steps[0].BodyHash != "abababababab" || first.Payload != nil {
				t.Errorf("got %+v", first)
			}
			for _, id := range []string{first.EventID, first.TraceID} {
				if same := object[traced](t, l.environment, "trace", id); len(same.Events) != 1 || same.Events[0].EventID != first.EventID {
					t.Errorf("by %s: %+v", id, same)
				}
			}
			text := l.ok(t, "trace", test.id)
			for _, part := range []string{test.id + " of courier-x", "shp_" + test.id, "\n  next ", test.next, "body abababababab…"} {
				if !strings.Contains(text, part) {
					t.Errorf("%q is missing in: %s", part, text)
				}
			}
			if all := text + l.ok(t, "trace", test.id, "--json"); strings.Contains(all, hidden) || strings.Contains(all, "the-signature") || strings.Contains(text, "\x1b") {
				t.Errorf("tells what it must not: %s", all)
			}
		})
	}
	traceOthers(l)
}

// traceOthers is about ids that name another number of events than one.
func traceOthers(l life) {
	l.accept("evt_1", "courier-x")
	l.accept("evt_1", "northpost")
	both := object[traced](l.T, l.environment, "trace", "evt_1")
	if len(both.Events) != 2 || both.Events[0].Source == both.Events[1].Source {
		l.Errorf("two couriers' events: %+v", both)
	}
	if text := l.ok(l.T, "trace", "evt_1"); strings.Count(text, "\nNow\n") != 2 {
		l.Errorf("two couriers' events: %s", text)
	}
	one := object[traced](l.T, l.environment, "trace", "evt_1", "--source", "northpost", "--payload")
	if len(one.Events) != 1 || one.Events[0].Source != "northpost" || !strings.Contains(string(one.Events[0].Payload), hidden) ||
		strings.Contains(string(one.Events[0].Payload), "the-signature") {
		l.Errorf("one courier's event: %+v", one)
	}
	if text := l.ok(l.T, "trace", "evt_1", "--source", "northpost", "--payload"); !strings.Contains(text, hidden) || strings.Contains(text, "the-signature") {
		l.Errorf("with its payload: %s", text)
	}
	if text := l.ok(l.T, "trace", "pruned", "--payload"); !strings.Contains(text, "nothing has it any longer") {
		l.Errorf("without its payload: %s", text)
	}
	for args, want := range map[string]string{
		"evt_0":                 `nothing is known of "evt_0"`,
		"evt_0 --source nobody": `nothing is known of "evt_0"`,
		"evt_1 --source nobody": `is no event of --source nobody; it is one of: courier-x, northpost`,
	} {
		if r := l.environment.run(l.T, append([]string{"trace"}, strings.Fields(args)...)...); r.code != 1 || !strings.Contains(r.stderr, want) || r.stdout != "" {
			l.Errorf("%s: %+v", args, r)
		}
	}
	if help := l.ok(l.T, "trace", "--help"); !strings.Contains(help, "gateway trace evt_123 --source northpost") {
		l.Errorf("help: %s", help)
	}
}
