package eventing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

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

// VersionedRoutes is a routing table that has a version, such as a digest of its file. The dispatcher
// puts the version into each message ([MetadataRoutingVersion]) and, when it settles the row, into the
// outbox; consumers keep it with deliveries in trouble. So it can be told by which table an event was
// routed.
type VersionedRoutes interface {
	Routes
	// Version has at most 64 bytes of printable text; any other counts as none. If the table is
	// exchanged while it is in use, so must be its version, at once: the dispatcher reads the version before
	// and after the routes of a batch, and all of them anew if it has changed.
	Version() string
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
	MetadataForce      = "waybill_force"      // "true": of a forced replay; absent: of none
	MetadataOutboxSeq  = "waybill_outbox_seq" // of the row, where the dispatcher settles by completion
	// MetadataRoutingVersion is the version of the table that routed the message; absent: it had none.
	MetadataRoutingVersion = "waybill_routing_version"
)

const maxVersionBytes = 64

// RoutingVersion returns the version of the routing table that a message says it was routed
// by; "" if it says none, or something that is no version.
func RoutingVersion(m message.Metadata) string { return checkedVersion(m.Get(MetadataRoutingVersion)) }

// checkedVersion returns a version, or "" if it cannot be one: it came over the broker, or
// from a table of whatever make, and is to be stored and shown.
func checkedVersion(v string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if len(v) > maxVersionBytes || !utf8.ValidString(v) || strings.ContainsFunc(v, unprintable) {
		return ""
	}
	return v
}

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
func decodeRow(r *OutboxRow) (Envelope, error) {
	return decodeEnvelope(r.Payload, Header{ID: r.EventID, Type: r.EventType, OccurredAt: r.CreatedAt})
}

// plan is where the rows of an event type go: a message to each topic.
type plan struct {
	routed  bool
	ordered bool // one of the consumers is
	targets []target
}

// target is a topic, with those of its consumers that are to have the event.
type target struct {
	topic      string
	ordered    bool
	partitions *[Partitions]string // the topics of an ordered one's partitions
	consumers  string
	codec      Codec
}

func newPlan(routes []Route, routed bool) plan {
	p := plan{routed: routed}
next:
	for _, r := range routes {
		p.ordered = p.ordered || r.Ordered
		for i := range p.targets {
			if t := &p.targets[i]; t.topic == r.Topic && t.ordered == r.Ordered {
				t.consumers += "," + r.Consumer
				continue next
			}
		}
		t := target{topic: r.Topic, ordered: r.Ordered, consumers: r.Consumer, codec: r.Codec}
		if t.codec == nil {
			t.codec = EnvelopeCodec{}
		}
		if t.ordered {
			t.partitions = new([Partitions]string)
		}
		p.targets = append(p.targets, t)
	}
	return p
}

// name returns the topic for a row of a partition.
func (t *target) name(partition int) string {
	if !t.ordered {
		return t.topic
	}
	name := &t.partitions[partition]
	if *name == "" {
		*name = PartitionTopic(t.topic, partition)
	}
	return *name
}

// outgoing is one message of a row, and the topic that it goes to.
type outgoing struct {
	topic string
	msg   *message.Message
}

// message makes the message of a row.
func (t *target) message(row *OutboxRow, settleByCompletion bool, slab *messageSlab) (*message.Message, error) {
	ours := 1 // entries of the metadata
	if row.version != "" {
		ours++
	}
	if settleByCompletion {
		ours++
	}
	m, err := marshalRow(row, t.codec, slab, ours)
	if err != nil {
		return nil, err
	}
	m.Metadata[MetadataConsumers] = t.consumers
	if row.version != "" {
		m.Metadata[MetadataRoutingVersion] = row.version
	}
	if row.Generation > 0 {
		m.Metadata[MetadataGeneration] = strconv.Itoa(row.Generation)
	}
	if row.Force {
		m.Metadata[MetadataForce] = "true"
	}
	if settleByCompletion {
		m.Metadata[MetadataOutboxSeq] = strconv.FormatInt(row.Seq, 10)
	}
	return m, nil
}

// messageSlab is memory for messages that nobody acks, of which some are needed.
type messageSlab []message.Message

// next makes a message; with no slab, one that can be acked.
func (s *messageSlab) next(id string, payload []byte) *message.Message {
	if s == nil {
		return message.NewMessage(id, payload)
	}
	if len(*s) == 0 {
		*s = make([]message.Message, slabSize)
	}
	m := &(*s)[0]
	*s = (*s)[1:]
	m.UUID, m.Payload = id, payload
	return m
}

func marshalRow(row *OutboxRow, codec Codec, slab *messageSlab, ours int) (*message.Message, error) {
	if isSynthetic(row.EventID) { // the replay of bytes that did not decode: perhaps the consumer has learnt to
		m := message.NewMessage(row.EventID, unwrapUndecodable(row.EventID, row.Payload))
		m.Metadata.Set("event_id", row.EventID)
		return m, nil
	}
	if _, whole := codec.(EnvelopeCodec); whole {
		if metadata, ok := scanHeader(row.Payload, ours); ok && metadata["event_id"] == row.EventID {
			m := slab.next(row.EventID, row.Payload)
			m.Metadata = metadata
			return m, nil
		}
	}
	e, err := decodeRow(row)
	if err != nil {
		return nil, err
	}
	return codec.Marshal(e)
}

// AddressedTo reports whether a message is for a consumer. Of a topic that consumers share,
// each gets all messages, also a replay for one of them; one that names nobody is for all.
func AddressedTo(m message.Metadata, consumer string) bool {
	list := m.Get(MetadataConsumers)
	return list == "" || slices.Contains(strings.Split(list, ","), consumer)
}
