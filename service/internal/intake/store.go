package intake

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// Entry is an accepted event, made ready for a [Store].
type Entry struct {
	Event      courier.Event
	ShipmentID string
	// BodyHash is the [courier.CanonicalHash] of the event's body.
	BodyHash string
	// Envelope is what is told; its ID is what the event is called from now on. The payload is here only if there is no Row.
	Envelope eventing.Envelope
	// Row is what the outbox gets: the envelope, encoded. With [Config.Direct] there is none.
	Row eventing.OutboxRow
}

// Receipt is what the ledger has under an entry's idempotency key: the entry itself or,
// for a key that was known, the first one.
type Receipt struct {
	TraceID  string
	BodyHash string
}

// Store keeps what has been accepted: an entry in the ledger, its envelope in the outbox.
type Store interface {
	// Receive takes over the entries whose idempotency keys it does not know yet, all of
	// them together or none, and returns a receipt for each. When it returns without an
	// error, they are durable. A key that is known it leaves as it is.
	//
	// The keys are distinct, unless [Config.Direct] says otherwise, and sorted: calls that have some in common wait for each other
	// in this order, and so not for ever.
	//
	// An error that is [ErrUnavailable] is of the moment. Any other may be of a single entry:
	// the caller tries again with fewer. When ctx ends, Receive returns soon, and it may be
	// that nobody knows whether the entries are stored.
	Receive(ctx context.Context, entries []*Entry) ([]Receipt, error)
}

// ErrUnavailable is of a [Store] that takes nothing now, whatever the entries are.
var ErrUnavailable = errors.New("the store is not available")
