package redisbroker

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// The fields of an entry, as watermill-redisstream names them.
const (
	uuidField     = "_watermill_message_uuid"
	metadataField = "metadata"
	payloadField  = "payload"
)

// transaction is the commands of one, and the memory that they are made in, which is
// used again by the next: this is the hot path of a dispatcher. What grows moves, and
// leaves what has been pointed to where it is.
type transaction struct {
	commands []redis.Cmder
	args     []any
	bytes    []byteArg
	metadata []byte
	size     int // of payloads and metadata, in bytes
}

// reset lets go of the messages.
func (t *transaction) reset() {
	clear(t.commands)
	clear(t.args)
	clear(t.bytes)
	t.commands, t.args, t.bytes, t.metadata = t.commands[:0], t.args[:0], t.bytes[:0], t.metadata[:0]
	t.size = 0
	if cap(t.metadata) > defaultTransactionBytes {
		t.metadata = nil
	}
}

// outcome returns how many messages Redis has acknowledged, and why not all. err is the
// transaction's.
func (t *transaction) outcome(err error) (int, error) {
	added := len(t.commands)
	for i, c := range t.commands {
		failed := c.Err()
		if failed == nil {
			continue
		}
		added, err = min(added, i), failed
		if !redis.IsExecAbortError(failed) {
			break // the cause: the others only say that there is one
		}
	}
	if err != nil && added == len(t.commands) {
		added = 0 // it was not even sent
	}
	return added, err
}

// byteArg is an argument of a command. Its address is one that costs no allocation, as a
// []byte in an interface would.
type byteArg []byte

func (b *byteArg) MarshalBinary() ([]byte, error) { return *b, nil }

// encode makes the commands for the first messages, at least one, until they are as
// many bytes as a transaction may have. One topic is that of all messages.
func (t *transaction) encode(cfg PublisherConfig, topics []string, msgs []*message.Message) error {
	for i, m := range msgs {
		args, encoded := len(t.args), len(t.metadata)
		topic := &topics[min(i, len(topics)-1)]
		t.args = append(t.args, "xadd", topic)
		if cfg.TrimUnread {
			t.args = append(t.args, "maxlen", "~", cfg.MaxLen)
		}
		t.args = append(t.args, "*")
		var size int
		if cfg.Marshaller != nil {
			if err := t.marshal(cfg.Marshaller, *topic, m); err != nil {
				return err
			}
			size = marshalledSize(t.args[args:])
		} else {
			if err := t.fields(m); err != nil {
				return err
			}
			size = len(t.metadata) - encoded + len(m.Payload)
		}
		if t.size+size > cfg.TransactionBytes && len(t.commands) > 0 {
			return nil // there is no command for this one: it goes with the next transaction
		}
		t.size += size
		t.commands = append(t.commands, redis.NewStatusCmd(context.Background(), t.args[args:len(t.args):len(t.args)]...))
	}
	return nil
}

// fields appends the fields that watermill-redisstream's DefaultMarshallerUnmarshaller
// makes.
func (t *transaction) fields(m *message.Message) error {
	if m.Metadata[uuidField] != "" {
		return fmt.Errorf("message %s: its metadata has the key %s, which is the wire format's own: remove it", m.UUID, uuidField)
	}
	start := len(t.metadata)
	var err error
	if t.metadata, err = appendMetadata(t.metadata, m.Metadata); err != nil {
		return fmt.Errorf("message %s: %w", m.UUID, err)
	}
	n := len(t.bytes)
	t.bytes = append(t.bytes, t.metadata[start:], byteArg(m.Payload))
	t.args = append(t.args, uuidField, &m.UUID, metadataField, &t.bytes[n], payloadField, &t.bytes[n+1])
	return nil
}

// appendMetadata appends a msgpack map of strings, or nothing where there is none.
func appendMetadata(b []byte, metadata message.Metadata) ([]byte, error) {
	switch n := len(metadata); {
	case n == 0:
		return b, nil
	case n < 16:
		b = append(b, 0x80|byte(n))
	case n <= math.MaxUint16:
		b = binary.BigEndian.AppendUint16(append(b, 0xde), uint16(n))
	default:
		return b, fmt.Errorf("it has %d metadata entries: %d are possible", n, math.MaxUint16)
	}
	for key, value := range metadata {
		for _, s := range [2]string{key, value} {
			switch n := len(s); {
			case n < 32:
				b = append(b, 0xa0|byte(n))
			case n <= math.MaxUint8:
				b = append(b, 0xd9, byte(n))
			case n <= math.MaxUint16:
				b = binary.BigEndian.AppendUint16(append(b, 0xda), uint16(n))
			case n <= math.MaxInt32:
				b = binary.BigEndian.AppendUint32(append(b, 0xdb), uint32(n))
			default:
				return b, fmt.Errorf("its metadata %.64q has %d bytes: 2 GiB are possible", key, n)
			}
			b = append(b, s...)
		}
	}
	return b, nil
}

// marshal appends the fields that a marshaller of the user's makes.
func (t *transaction) marshal(marshaller Marshaller, topic string, m *message.Message) error {
	values, err := marshaller.Marshal(topic, m)
	if err != nil {
		return fmt.Errorf("marshal message %s: %w", m.UUID, err)
	}
	for field, value := range values {
		t.args = append(t.args, field, value)
	}
	return nil
}

// marshalledSize counts what may be large.
func marshalledSize(args []any) int {
	size := 0
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	return size
}
