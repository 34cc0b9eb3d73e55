package eventing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Route says where an event goes for one consumer.
type Route struct {
	Consumer string
	// Topic of the broker. Consumers may share one.
	Topic string
	// Ordered: the topic is partitioned by ordering key, see [PartitionTopic].
	Ordered bool
	// Codec turns envelopes into messages of the topic. Default: [EnvelopeCodec].
	Codec Codec
}

// Routes is a routing table. It must be pure: the same type, the same routes.
type Routes interface {
	// Route returns where events of a type go. routed is false for a type that
	// the table does not know; a known type may go nowhere.
	Route(eventType string) (routes []Route, routed bool)
	// Consumer returns the route of a consumer, whatever the event's type.
	Consumer(name string) (route Route, known bool)
}

// PartitionTopic names the topic of one partition of an ordered consumer's
// topic.
func PartitionTopic(topic string, partition int) string {
	return fmt.Sprintf("%s.%02d", topic, partition)
}

// Message metadata. The header's fields travel under their envelope names
// ("event_id", "event_type", "correlation_id" …), and what only the library
// needs under these.
const (
	MetadataConsumers  = "waybill_consumers"  // comma-separated; absent: whoever reads the topic
	MetadataGeneration = "waybill_generation" // of a replay
	MetadataOutboxID   = "waybill_outbox_id"  // of the row, where the dispatcher settles by completion
)

// Codec turns envelopes into messages of a broker and back.
type Codec interface {
	Marshal(e Envelope) (*message.Message, error)
	// Unmarshal fails on a message that is not an envelope. It must depend on
	// nothing but the message.
	Unmarshal(m *message.Message) (Envelope, error)
}

// EnvelopeCodec puts the whole envelope into the message's payload, as JSON. The
// metadata repeats its header for those who route or filter without decoding.
type EnvelopeCodec struct{}

// Marshal implements [Codec].
func (EnvelopeCodec) Marshal(e Envelope) (*message.Message, error) {
	payload, err := EncodeEnvelope(e)
	if err != nil {
		return nil, err
	}
	m := message.NewMessage(e.ID, payload)
	setHeader(m.Metadata, e.Header)
	return m, nil
}

// Unmarshal implements [Codec].
func (EnvelopeCodec) Unmarshal(m *message.Message) (Envelope, error) {
	return DecodeEnvelope(m.Payload)
}

// PayloadCodec puts only the event's payload into the message and the rest of
// the envelope into its metadata, for topics whose format is given.
type PayloadCodec struct{}

// Marshal implements [Codec].
func (PayloadCodec) Marshal(e Envelope) (*message.Message, error) {
	if err := checkEnvelope(e); err != nil {
		return nil, err
	}
	m := message.NewMessage(e.ID, message.Payload(e.Payload))
	setHeader(m.Metadata, e.Header)
	return m, nil
}

// Unmarshal implements [Codec].
func (PayloadCodec) Unmarshal(m *message.Message) (Envelope, error) {
	e := Envelope{Payload: []byte(m.Payload)}
	if err := getHeader(m.Metadata, &e.Header); err != nil {
		return e, err
	}
	e.complete(Header{})
	return e, checkEnvelope(e)
}

// decodeRow returns the envelope of a row that was adopted or appended.
func decodeRow(r OutboxRow) (Envelope, error) {
	return decodeEnvelope(r.Payload, Header{ID: r.EventID, Type: r.EventType, OccurredAt: r.CreatedAt})
}

// outgoing is one message of a row, and the topic that it goes to.
type outgoing struct {
	topic string
	msg   *message.Message
}

// messages makes a message for each topic that the row's routes name.
func messages(row OutboxRow, routes []Route, settleByCompletion bool) ([]outgoing, error) {
	var out []outgoing
	consumers := map[string][]string{}
	codecs := map[string]Codec{}
	var topics []string
	for _, r := range routes {
		topic := r.Topic
		if r.Ordered {
			topic = PartitionTopic(topic, row.Partition)
		}
		if consumers[topic] == nil {
			topics = append(topics, topic)
			codecs[topic] = r.Codec
		}
		consumers[topic] = append(consumers[topic], r.Consumer)
	}
	for _, topic := range topics {
		m, err := marshalRow(row, codecs[topic])
		if err != nil {
			return nil, err
		}
		m.Metadata.Set(MetadataConsumers, strings.Join(consumers[topic], ","))
		if row.Generation > 0 {
			m.Metadata.Set(MetadataGeneration, strconv.Itoa(row.Generation))
		}
		if settleByCompletion && isOutboxID(row.ID) { // a person may have written any bytes
			m.Metadata.Set(MetadataOutboxID, row.ID)
		}
		out = append(out, outgoing{topic, m})
	}
	return out, nil
}

func marshalRow(row OutboxRow, codec Codec) (*message.Message, error) {
	if isSynthetic(row.EventID) { // the replay of bytes that did not decode: perhaps the consumer has learnt to
		m := message.NewMessage(row.EventID, unwrapUndecodable(row.EventID, row.Payload))
		m.Metadata.Set("event_id", row.EventID)
		return m, nil
	}
	e, err := decodeRow(row)
	if err != nil {
		return nil, err
	}
	if codec == nil {
		codec = EnvelopeCodec{}
	}
	return codec.Marshal(e)
}

func addressedTo(m message.Metadata, consumer string) bool {
	list := m.Get(MetadataConsumers)
	return list == "" || slices.Contains(strings.Split(list, ","), consumer)
}
