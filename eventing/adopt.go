package eventing

import (
	"fmt"
	"time"
)

// AdoptRequest asks a store to take in hand-written rows.
type AdoptRequest struct {
	Now   time.Time
	Limit int
	// DeadLetterUntil is the expiry of dead letters that are opened.
	DeadLetterUntil time.Time
}

// CompleteRow makes an outbox row of the envelope that somebody wrote into the
// table by hand: what the envelope leaves out comes from the row's columns. The
// error says what is wrong with the payload.
func CompleteRow(row OutboxRow) (OutboxRow, error) {
	e, err := decodeEnvelope(unwrapUndecodable(row.EventID, row.Payload),
		Header{ID: row.EventID, Type: row.EventType, OccurredAt: row.CreatedAt})
	if err != nil {
		return row, err
	}
	if isSynthetic(row.EventID) {
		e.ID = row.EventID
	}
	if e.ID != row.EventID {
		return row, &InvalidEventError{EventID: row.EventID, Field: "event_id", Problem: fmt.Sprintf("of the envelope is %q, that of the row another", e.ID)}
	}
	if row.EventType != "" && e.Type != row.EventType {
		return row, &InvalidEventError{EventID: row.EventID, Field: "event_type", Problem: fmt.Sprintf("of the envelope is %q, that of the row %q", e.Type, row.EventType)}
	}
	if row.Payload, err = EncodeEnvelope(e); err != nil {
		return row, err
	}
	row.EventType, row.OrderingKey = e.Type, e.OrderKey()
	row.Partition = PartitionOf(row.OrderingKey, row.EventID)
	return row, nil
}

// Undecodable is what a dead letter of stage decode keeps of bytes that are not
// an envelope: a synthetic event ID derived from the bytes, and the bytes
// wrapped in JSON and base64.
func Undecodable(b []byte) (eventID string, payload []byte) { return wrapUndecodable(b) }

// IsUndecodable reports whether an event ID is a synthetic one of [Undecodable].
func IsUndecodable(eventID string) bool { return isSynthetic(eventID) }

// ReplayRow is the outbox row that replays a dead letter: aimed at its
// consumer, and told from earlier replays by its generation. Stores set Force.
func ReplayRow(dl DeadLetter, generation int, now time.Time) OutboxRow {
	key := ""
	if e, err := DecodeEnvelope(dl.Payload); err == nil && !isSynthetic(dl.EventID) {
		key = e.OrderKey()
	}
	return OutboxRow{
		ID:      fmt.Sprintf("%s/%s/%d@%d", dl.EventID, dl.Consumer, generation, now.UnixMilli()),
		EventID: dl.EventID, EventType: dl.EventType, Payload: dl.Payload, OrderingKey: key,
		Partition: PartitionOf(key, dl.EventID), CreatedAt: now, Consumer: dl.Consumer, Generation: generation,
	}
}
