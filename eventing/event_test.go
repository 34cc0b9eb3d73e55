package eventing

import (
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"testing"
	"time"
)

type orderPlaced struct{ Number int }

type orderCancelled struct{}

func (orderCancelled) EventType() string { return "order.cancelled" }

type orderShipped struct{ to string }

func (o *orderShipped) EventType() string { return "order.shipped" + o.to }

func TestTypeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{TypeOf[orderPlaced](), "orderPlaced"},
		{TypeOf[*orderPlaced](), "orderPlaced"},
		{TypeOf[orderPlaced](), "orderPlaced"}, // from the cache
		{TypeOf[orderCancelled](), "order.cancelled"},
		{TypeOf[*orderCancelled](), "order.cancelled"},
		{TypeOf[orderShipped](), "order.shipped"},
		{TypeOf[*orderShipped](), "order.shipped"},
		{TypeOf[json.RawMessage](), ""},
		{TypeOf[map[string]int](), ""},
		{TypeOf[struct{ A int }](), ""},
	} {
		if c.got != c.want {
			t.Errorf("want %q, got %q", c.want, c.got)
		}
	}
}

func TestNewID(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if !form.MatchString(id) || seen[id] {
			t.Fatalf("a UUIDv7 that is new, got %s", id)
		}
		seen[id] = true
	}
	// RFC 9562, appendix A.6: 0x017F22E279B0 is 2022-02-22T19:22:22Z.
	if id := newID(time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC)); id[:13] != "017f22e2-79b0" {
		t.Errorf("the id begins with the milliseconds of its time, got %s", id)
	}
}

func TestOrderKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		h    Header
		want string
	}{
		{Header{}, ""},
		{Header{AggregateType: "order"}, ""},
		{Header{AggregateID: "42"}, "/42"},
		{Header{AggregateType: "order", AggregateID: "42"}, "order/42"},
		{Header{AggregateType: "order", AggregateID: "42", OrderingKey: "customer/7"}, "customer/7"},
	} {
		if got := c.h.OrderKey(); got != c.want {
			t.Errorf("%+v: want %q, got %q", c.h, c.want, got)
		}
	}
}

func TestDecodePayload(t *testing.T) {
	t.Parallel()
	env := minimalEnvelope()
	env.Payload = json.RawMessage(`{"Number":42}`)
	e, err := DecodePayload[orderPlaced](env)
	if err != nil || e.Payload.Number != 42 || e.Header != env.Header {
		t.Errorf("header and payload, got %+v, %v", e, err)
	}
	raw, err := DecodePayload[json.RawMessage](env)
	if err != nil || string(raw.Payload) != `{"Number":42}` {
		t.Errorf("raw messages are left as they are, got %s, %v", raw.Payload, err)
	}
	env.Payload = json.RawMessage(`{"Number":"many"}`)
	_, err = DecodePayload[orderPlaced](env)
	if !IsPermanent(err) || ReasonOf(err) != ReasonPayloadMalformed {
		t.Errorf("bytes that do not fit never will, got %v", err)
	}
}

func TestEnvelopeOf(t *testing.T) {
	t.Parallel()
	e, err := New("order", "42", orderPlaced{7}).envelope()
	if err != nil || e.Type != "orderPlaced" || string(e.Payload) != `{"Number":7}` || e.OrderKey() != "order/42" {
		t.Errorf("got %+v, %v", e, err)
	}
	typed := New("order", "42", orderPlaced{7})
	typed.Type = "order.placed"
	if e, _ = typed.envelope(); e.Type != "order.placed" {
		t.Errorf("a type that is set stays, got %s", e.Type)
	}
	_, err = New("", "", math.Inf(1)).envelope()
	var invalid *InvalidEventError
	if !errors.As(err, &invalid) || invalid.Field != "payload" {
		t.Errorf("a payload that does not encode is named, got %v", err)
	}
	if _, err = (Event[json.RawMessage]{Payload: json.RawMessage(`1`)}).envelope(); err != nil {
		t.Errorf("an envelope can be appended too, got %v", err)
	}
}

func TestPartitionGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, id string
		want    int
	}{
		{"", "", 5}, {"a", "", 12}, {"", "a", 12}, {"a", "b", 12}, {"order/42", "", 18}, {"foobar", "", 8}, {"ключ", "", 1},
	} {
		if got := PartitionOf(c.key, c.id); got != c.want {
			t.Errorf("PartitionOf(%q, %q) is stored in every row and must stay %d, got %d", c.key, c.id, c.want, got)
		}
	}
	if Partitions != 32 {
		t.Error("the number of partitions is part of every stored row")
	}
}
