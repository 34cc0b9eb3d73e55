package gateway

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// deadLetterQueue is the topic that tells others of events that died at the worker. It is
// the consumer of its rows, too, as no type of event may lead there: couriers choose
// those.
const deadLetterQueue = "courier-events-dlq"

const deadLetterType = "courier.event.dead_lettered"

// deadLetter is a message of the queue.
type deadLetter struct {
	EventID               string              `json:"eventId"`
	IdempotencyKey        string              `json:"idempotencyKey"`
	TraceID               string              `json:"traceId"`
	AttemptCount          int                 `json:"attemptCount"`
	TerminalReasonCode    eventing.ReasonCode `json:"terminalReasonCode"`
	TerminalReasonMessage string              `json:"terminalReasonMessage"`
	AttemptHistory        []eventing.Attempt  `json:"attemptHistory"`
	PayloadSnapshot       json.RawMessage     `json:"payloadSnapshot"`
	DeadLetteredAt        time.Time           `json:"deadLetteredAt"`
}

// encode puts the message into its envelope, and encodes that.
func (l deadLetter) encode(envelope eventing.Envelope) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return nil, err
	}
	envelope.Payload = b.Bytes()
	return eventing.EncodeEnvelope(envelope)
}

// deadLetterRow makes the outbox row of a message. Of an event that did not come from the
// intake, or does not decode, the message says as much as can be read.
func deadLetterRow(f eventing.Failure) (row eventing.OutboxRow, err error) {
	letter := deadLetter{
		EventID: f.EventID, AttemptCount: f.Attempts, TerminalReasonCode: f.Reason, TerminalReasonMessage: f.Message,
		AttemptHistory: append([]eventing.Attempt{}, f.History...), DeadLetteredAt: f.Now.UTC(),
	}
	if json.Valid(f.Payload) {
		letter.PayloadSnapshot = f.Payload
	}
	dead, err := eventing.DecodeEnvelope(f.Payload)
	if err == nil {
		letter.PayloadSnapshot = dead.Payload
	}
	var e courier.Event
	if err == nil && json.Unmarshal(dead.Payload, &e) == nil && e.EventID != "" {
		letter.EventID, letter.IdempotencyKey, letter.TraceID, letter.PayloadSnapshot = e.EventID, e.IdempotencyKey, e.TraceID, e.Payload
	}
	envelope := eventing.Envelope{Header: eventing.Header{
		ID: eventing.NewID(), Type: deadLetterType, SchemaVersion: 1, OccurredAt: f.Now, CorrelationID: dead.CorrelationID, CausationID: f.EventID,
		AggregateType: dead.AggregateType, AggregateID: dead.AggregateID,
	}}
	payload, err := letter.encode(envelope)
	if err != nil { // it is too long; the dead letter in the database has it all
		letter.PayloadSnapshot = nil
		payload, err = letter.encode(envelope)
	}
	key := envelope.OrderKey()
	return eventing.OutboxRow{
		ID: envelope.ID, EventID: envelope.ID, EventType: envelope.Type, Payload: payload, OrderingKey: key,
		Partition: eventing.PartitionOf(key, envelope.ID), CreatedAt: f.Now, Consumer: deadLetterQueue,
	}, err
}
