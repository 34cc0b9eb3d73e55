package courier

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/internal/strictjson"
)

// EventID names the envelope of the event that source sent under the given
// idempotency key: always the same, and another for every other pair, also
// where two couriers share event ids or keys. It is a UUIDv8 (RFC 9562, section
// 5.8) over 122 bits of SHA-256.
func EventID(source, idempotencyKey string) string {
	return derivedID("waybill courier event", source, idempotencyKey)
}

// DirectID names the envelope of an event that the intake publishes without entering it into the
// ledger: as [EventID] does, but another for each body. Nobody has compared the bodies then, so that
// envelopes of one name must have the same one.
func DirectID(source, idempotencyKey, bodyHash string) string {
	return derivedID("waybill direct courier event", source, idempotencyKey, bodyHash)
}

// Direct reports whether an intake has published the event in the envelope of that id without
// entering it into the ledger, which the worker then does. Of what others have put into the queue the
// ledger takes nothing, as it might not be able to.
func (e *Event) Direct(envelopeID string) bool {
	if e.BodyHash == "" || envelopeID != DirectID(e.Source, e.IdempotencyKey, e.BodyHash) {
		return false
	}
	for _, text := range []string{e.EventID, e.EventType, e.Source, e.IdempotencyKey, e.TraceID, e.BodyHash} {
		if len(text) > MaxIDLength || strings.ContainsFunc(text, unicode.IsControl) {
			return false
		}
	}
	return true
}

// StateChangeID names the envelope that tells what the event in another one did to its
// shipment's state: always the same, so that telling it again is recognised.
func StateChangeID(envelopeID string) string {
	return derivedID("waybill shipment state change", envelopeID)
}

func derivedID(parts ...string) string {
	b := make([]byte, 0, 512)
	for _, part := range parts {
		// Lengths keep ("a", "bc") and ("ab", "c") apart.
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// CanonicalHash tells bodies apart: two get the same hash if they stand for the
// same JSON value (see [strictjson.AppendCanonical]), however they are written.
// It is SHA-256 in hexadecimal. raw must have passed [strictjson.Check].
func CanonicalHash(raw []byte) string {
	sum := sha256.Sum256(strictjson.AppendCanonical(make([]byte, 0, len(raw)), raw))
	return hex.EncodeToString(sum[:])
}
