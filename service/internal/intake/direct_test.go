package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/httpapi"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/schemas/schematest"
)

// queue is a broker of the test's.
type queue struct {
	// publish, if set, is called instead of taking the messages.
	publish func(msgs []*message.Message) error
	topics  []string
	calls   [][]*message.Message
}

func (q *queue) Publish(topic string, msgs ...*message.Message) error {
	if q.publish != nil {
		return q.publish(msgs)
	}
	q.topics, q.calls = append(q.topics, topic), append(q.calls, msgs)
	return nil
}

func (*queue) Close() error { return nil }

func signed(key string) courier.Event {
	e := event(key)
	e.OccurredAt, e.ReceivedAt = time.Now().UTC(), time.Now().UTC()
	e.SignatureMeta = courier.SignatureMeta{Algorithm: "hmac-sha256", Timestamp: 1, Signature: "00"}
	return e
}

// A group is published in one call, repeats and other bodies included: each has an answer of its own, and equal
// bodies one envelope.
func TestDirect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate, q := make(chan struct{}), &queue{}
		q.publish = func([]*message.Message) error {
			<-gate
			q.publish = nil
			return nil
		}
		in := intake.New(intake.Config{Store: &intake.Direct{Publisher: q, Topic: "the queue"}, Direct: true})
		held := accept(t.Context(), in, signed("held"), "hash")
		synctest.Wait()
		var answers []<-chan answered
		for _, of := range []struct{ key, trace, hash string }{{"b", "1", "hash"}, {"a", "2", "hash"}, {"a", "3", "hash"}, {"a", "4", "another"}} {
			e := signed(of.key)
			e.TraceID = of.trace
			answers = append(answers, accept(t.Context(), in, e, of.hash))
			synctest.Wait()
		}
		close(gate)
		<-held
		for i, c := range answers {
			if a := <-c; a.err != nil || a.trace != string(rune('1'+i)) {
				t.Errorf("request %d: %+v", i, a)
			}
		}
		if len(q.calls) != 1 || len(q.calls[0]) != 4 || q.topics[0] != "the queue" {
			t.Fatalf("published %v to %v, want four messages at once", q.calls, q.topics)
		}
		ids := map[string]int{}
		for _, m := range q.calls[0] {
			ids[checked(t, m)]++
		}
		if len(ids) != 3 || ids[courier.DirectID("courier-x", "a", "hash")] != 2 {
			t.Errorf("the envelopes are %v, want one for each body", ids)
		}
		if err := in.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// checked returns the id of the envelope in a message that the worker can use.
func checked(t *testing.T, m *message.Message) string {
	t.Helper()
	envelope, err := eventing.PayloadCodec{}.Unmarshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := schematest.Validate("courier-events-main", 1, envelope.Payload); err != nil {
		t.Errorf("%s: %v", envelope.Payload, err)
	}
	a, ok := courier.DirectArrival(envelope)
	if !ok || a.Payload.ShipmentID != "shp_1" || a.Event.Attempt != 1 || envelope.CorrelationID != a.Event.TraceID ||
		envelope.IdempotencyKey != a.Event.IdempotencyKey || envelope.AggregateID != "shp_1" {
		t.Errorf("the envelope is %+v", envelope)
	}
	return envelope.ID
}

// What the broker refuses, or does not take in time, is nobody's fault; what cannot be a message fails alone.
func TestDirectFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		q := &queue{publish: func(msgs []*message.Message) error {
			calls++
			<-msgs[0].Context().Done()
			return msgs[0].Context().Err()
		}}
		d := &intake.Direct{Publisher: q, Topic: "the queue"}
		in := intake.New(intake.Config{Store: d, Direct: true})
		began := time.Now()
		if a := <-accept(t.Context(), in, signed("a"), "hash"); !errors.Is(a.err, intake.ErrUnavailable) || !errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, httpapi.ErrConflict) {
			t.Errorf("a broker that hangs: %v", a.err)
		}
		if took := time.Since(began); took != 5*time.Second || calls != 1 {
			t.Errorf("it was given up after %v and %d calls", took, calls)
		}
		q.publish = nil
		bad := signed("b")
		bad.EventType = ""
		first, second, third := accept(t.Context(), in, signed("a"), "hash"), accept(t.Context(), in, bad, "hash"), accept(t.Context(), in, signed("c"), "hash")
		var invalid *eventing.InvalidEventError
		if a := <-second; !errors.As(a.err, &invalid) || errors.Is(a.err, intake.ErrUnavailable) {
			t.Errorf("no event: %v", a.err)
		}
		for _, c := range []<-chan answered{first, third} {
			if a := <-c; a.err != nil {
				t.Errorf("its neighbour: %v", a.err)
			}
		}
		if err := in.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What others put into the queue is not taken for the intake's.
func TestNotDirect(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*courier.Event){
		"as it was":         func(*courier.Event) {},
		"no hash":           func(e *courier.Event) { e.BodyHash = "" },
		"another hash":      func(e *courier.Event) { e.BodyHash = "another" },
		"another key":       func(e *courier.Event) { e.IdempotencyKey = "b" },
		"control character": func(e *courier.Event) { e.EventID = "\x00" },
		"no shipment":       func(e *courier.Event) { e.Payload = json.RawMessage(`{}`) },
	} {
		e := signed("a")
		e.BodyHash = "hash"
		id := courier.DirectID(e.Source, e.IdempotencyKey, e.BodyHash)
		change(&e)
		envelope := eventing.Envelope{Header: eventing.Header{ID: id}, Payload: e.AppendJSON(nil)}
		if _, ok := courier.DirectArrival(envelope); ok != (name == "as it was") {
			t.Errorf("%s: %t", name, ok)
		}
	}
}
