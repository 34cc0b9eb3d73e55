package redisbroker

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// QuarantineSuffix follows the topic in the name of the stream that gets the entries
// from which no message can be made, with all of their fields.
const QuarantineSuffix = ".quarantine"

// The fields that a quarantined entry has besides its own.
const (
	quarantinedIDField    = "waybill_entry_id"
	quarantinedErrorField = "waybill_error"
)

func (s *Subscriber) decode(e *redis.XMessage) (*message.Message, error) {
	if u := s.cfg.Unmarshaller; u != nil {
		m, err := u.Unmarshal(e.Values)
		if m == nil && err == nil {
			err = errors.New("the unmarshaller has made no message of the entry")
		}
		return m, err
	}
	return decode(e.Values)
}

// decode reads what watermill-redisstream's DefaultMarshallerUnmarshaller writes.
func decode(values map[string]any) (*message.Message, error) {
	uuid, ok := values[uuidField].(string)
	if !ok {
		return nil, fmt.Errorf("the entry has no field %s", uuidField)
	}
	payload, _ := values[payloadField].(string)
	m := message.NewMessage(uuid, message.Payload(payload))
	if text, _ := values[metadataField].(string); text != "" {
		metadata, err := decodeMetadata(text)
		if err != nil {
			return nil, fmt.Errorf("the entry's field %s: %w", metadataField, err)
		}
		m.Metadata = metadata
	}
	return m, nil
}

var errMsgpack = errors.New("it is no msgpack map of strings")

// decodeMetadata reads a msgpack map of strings
// (https://github.com/msgpack/msgpack/blob/master/spec.md). As watermill-redisstream's
// decoder does, it takes nil for an empty map or string, binary for strings, and what may
// follow for nothing. Unlike that, it does not skip the header of an extension type.
func decodeMetadata(text string) (message.Metadata, error) {
	n, rest, err := msgpackLength(text, 0x80, 0x8f, [3]byte{0, 0xde, 0xdf}, [3]byte{})
	if err != nil {
		return nil, err
	}
	if n > len(rest)/2 { // an entry has two bytes at least
		return nil, errMsgpack
	}
	metadata := make(message.Metadata, n)
	for range n {
		var pair [2]string
		for i := range pair {
			var size int
			if size, rest, err = msgpackLength(rest, 0xa0, 0xbf, [3]byte{0xd9, 0xda, 0xdb}, [3]byte{0xc4, 0xc5, 0xc6}); err != nil {
				return nil, err
			}
			if size > len(rest) {
				return nil, errMsgpack
			}
			pair[i], rest = rest[:size], rest[size:]
		}
		metadata[pair[0]] = pair[1]
	}
	return metadata, nil
}

// msgpackLength reads the length at the beginning of text: in the first byte if that is
// from least to most; in the 1, 2 or 4 bytes that follow it if it is the first, second or
// third of long or binary, of which 0 is none.
func msgpackLength(text string, least, most byte, long, binary [3]byte) (n int, rest string, err error) {
	if text == "" {
		return 0, "", errMsgpack
	}
	size := 0
	switch first := text[0]; {
	case first == 0xc0: // nil
		return 0, text[1:], nil
	case first >= least && first <= most:
		return int(first - least), text[1:], nil
	case first == 0:
		return 0, "", errMsgpack
	case first == long[0] || first == binary[0]:
		size = 1
	case first == long[1] || first == binary[1]:
		size = 2
	case first == long[2] || first == binary[2]:
		size = 4
	default:
		return 0, "", errMsgpack
	}
	if len(text) < 1+size {
		return 0, "", errMsgpack
	}
	for _, b := range []byte(text[1 : 1+size]) {
		n = n<<8 | int(b)
	}
	return n, text[1+size:], nil
}

// quarantine copies an entry that is no message to where people can look at it, and
// reports whether that worked.
func (t *subscription) quarantine(e *redis.XMessage, problem error) bool {
	log := t.s.cfg.Logger.With("topic", t.topic, "entry", e.ID, "error", problem, "quarantine", t.topic+QuarantineSuffix)
	values := []any{quarantinedIDField, e.ID, quarantinedErrorField, problem.Error()}
	for field, value := range e.Values {
		values = append(values, field, value)
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.s.patience)
	defer cancel()
	if err := t.s.client.XAdd(ctx, &redis.XAddArgs{Stream: t.topic + QuarantineSuffix, Values: values}).Err(); err != nil {
		log.Error("redisbroker: an entry is no message, and could not be put in quarantine; will try again", "cause", err)
		return false
	}
	log.Error("redisbroker: an entry is no message and is now in quarantine")
	return true
}
