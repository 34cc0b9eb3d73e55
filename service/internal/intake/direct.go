package intake

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Direct implements [Store] with a broker: it publishes entries as they come, and knows of no
// others. The worker enters them into the ledger, and drops repeats. What the broker acks is as durable
// as it makes it.
type Direct struct {
	Publisher message.Publisher // required
	Topic     string            // required
	// Timeout bounds a call of the broker. Default: 5 s.
	Timeout time.Duration
}

var _ Store = (*Direct)(nil)

// Receive implements [Store]. An entry of the call may be in the queue also if it fails.
func (d *Direct) Receive(ctx context.Context, entries []*Entry) ([]Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.Timeout, 5*time.Second))
	defer cancel()
	messages, receipts := make([]*message.Message, len(entries)), make([]Receipt, len(entries))
	for i, e := range entries {
		m, err := d.message(e)
		if err != nil {
			return nil, fmt.Errorf("make the message of %s: %w", e.Event.EventID, err)
		}
		m.SetContext(ctx)
		messages[i], receipts[i] = m, Receipt{TraceID: e.Event.TraceID, BodyHash: e.BodyHash}
	}
	if err := d.Publisher.Publish(d.Topic, messages...); err != nil {
		return nil, fmt.Errorf("publish %d events: %w: %w", len(messages), ErrUnavailable, err)
	}
	return receipts, nil
}

// message makes what the dispatcher would make of the entry's outbox row, but for what the worker
// needs to enter it into the ledger.
func (d *Direct) message(e *Entry) (*message.Message, error) {
	event, envelope := e.Event, e.Envelope
	event.BodyHash = e.BodyHash
	envelope.ID = courier.DirectID(event.Source, event.IdempotencyKey, e.BodyHash)
	envelope.SchemaVersion = 1
	envelope.Payload = event.AppendJSON(make([]byte, 0, len(envelope.Payload)+eventBytes))
	return eventing.PayloadCodec{}.Marshal(envelope)
}
