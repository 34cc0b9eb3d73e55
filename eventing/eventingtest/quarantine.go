package eventingtest

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Bytes from the broker that are no envelope.
func quarantineTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"undecodable bytes are a dead letter":          quarantineKeeps[Tx],
		"the same bytes twice are one":                 quarantineTwice[Tx],
		"an id of the metadata that is no text":        quarantineID[Tx],
		"a replay that does not decode is pending":     quarantineReplay[Tx],
		"a replay that decodes is handled":             quarantineLearnt[Tx],
		"a payload that does not fit the handler dies": quarantinePayload[Tx],
		"in the ordered consumer it holds up no key":   quarantineOrdered[Tx],
	}
}

// learningCodec reads an old format once it has learnt to.
type learningCodec struct {
	eventing.EnvelopeCodec
	mu     sync.Mutex
	learnt bool
}

func (c *learningCodec) learn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learnt = true
}

func (c *learningCodec) Unmarshal(m *message.Message) (eventing.Envelope, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number, old := strings.CutPrefix(string(m.Payload), "old format: "); old && c.learnt {
		payload, err := json.Marshal(orderPlaced{Number: number})
		return eventing.Envelope{Header: eventing.Header{
			ID: number, Type: "order.placed", OccurredAt: time.Unix(1e9, 0), SchemaVersion: 1, CorrelationID: number,
		}, Payload: payload}, err
	}
	return c.EnvelopeCodec.Unmarshal(m)
}

// garble has the broker deliver bytes to the consumer, and returns the ID of the dead
// letter that they become.
func (c *consumer[Tx]) garble(raw string) string {
	c.w.Helper()
	topic := c.name
	if c.cfg.Policy.Ordered {
		topic = eventing.PartitionTopic(c.name, 0)
	}
	c.w.must(c.w.broker.Publish(topic, message.NewMessage("garbled", []byte(raw))))
	c.w.rest()
	id, _ := eventing.Undecodable([]byte(raw))
	return id
}

func quarantineKeeps[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for _, raw := range []string{"no JSON", "", "\xff\x00\xfe", `{"event_id":"e1"}`} {
		id := c.garble(raw)
		_, kept := eventing.Undecodable([]byte(raw))
		dl := w.deadLetter(target(id, c))
		w.equal("undecodable bytes are kept, wrapped", []any{dl.Stage, dl.Reason, dl.Status, dl.AttemptCount, string(dl.Payload)},
			[]any{eventing.StageDecode, eventing.ReasonEnvelopeMalformed, eventing.StatusPending, 1, string(kept)})
	}
	w.append(order("e1", ""))
	w.rest()
	w.effects("undecodable bytes stop nothing", c, "e1")
	w.deliveries("undecodable bytes have no delivery", 0, 0, 0)
}

func quarantineTwice[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", nil), w.consumer("mail", nil)
	id := a.garble("no JSON")
	a.garble("no JSON")
	w.equal("the same bytes twice are one dead letter", len(w.graveyard()), 1)
	w.status("which is pending", target(id, a), eventing.StatusPending, "")
	b.garble("no JSON")
	w.equal("and another one of another consumer", len(w.graveyard()), 2)
}

func quarantineID[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	for i, id := range []string{"undecodable-\x00", "undecodable-\xff"} {
		m, err := eventing.EnvelopeCodec{}.Marshal(eventing.Envelope{
			Header:  eventing.Header{ID: "e1", Type: "order.placed", OccurredAt: time.Unix(1e9, int64(i)), SchemaVersion: 1},
			Payload: json.RawMessage(`{"number":"e1"}`),
		})
		w.must(err)
		m.Metadata.Set("event_id", id)
		w.must(w.broker.Publish(c.name, m))
		w.rest()
		w.equal("it is a dead letter", len(w.graveyard()), i+1)
	}
	w.append(order("e1", ""))
	w.rest()
	w.effects("and stops nothing", c, "e1")
}

func quarantineReplay[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	id := c.garble("no JSON")
	w.replay(target(id, c))
	w.rest()
	w.status("a replay that still does not decode is pending again", target(id, c), eventing.StatusPending, "")
	w.equal("the replay sends the bytes as they came", string(w.broker.sent[len(w.broker.sent)-1].msg.Payload), "no JSON")
	w.discard(target(id, c))
	w.status("it can be discarded", target(id, c), eventing.StatusClosed, eventing.Discarded)
	w.effects("it never ran", c)
}

func quarantineLearnt[Tx any](w *world[Tx]) {
	codec := &learningCodec{}
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) { cfg.Codec = codec })
	id := c.garble("old format: e1")
	codec.learn()
	c.fail(errBusy, id)
	w.replay(target(id, c))
	w.rest()
	w.deliveries("a replay that decodes now is handled, and retried if that fails", 1, 0, 0)
	c.heal()
	w.clock.Advance(time.Hour)
	w.rest()
	w.effects("under the id of its dead letter", c, id)
	w.status("success closes", target(id, c), eventing.StatusClosed, eventing.Resolved)
}

func quarantinePayload[Tx any](w *world[Tx]) {
	c := w.consumer("billing", nil)
	c.fail(eventing.PermanentWithReason(eventing.ReasonPayloadMalformed, errors.New("number is missing")), "e1")
	w.append(order("e1", ""))
	w.rest()
	dl := w.deadLetter(target("e1", c))
	w.equal("a payload that does not fit is a dead letter of stage decode, under the event's id", []any{dl.Stage, dl.Reason, dl.AttemptCount},
		[]any{eventing.StageDecode, eventing.ReasonPayloadMalformed, 1})
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.effects("a replay has the consumer handle it", c, "e1")
	w.status("success closes", target("e1", c), eventing.StatusClosed, eventing.Resolved)
}

func quarantineOrdered[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", ordered)
	c.garble("no JSON")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.effects("bytes without a key hold up no key", c, "e1", "e2")
}
