// Package ledger keeps what became of each accepted event, one row for each
// idempotency key.
package ledger

import (
	"time"

	"github.com/waybill-go/waybill/service/internal/store"
)

// Ledger writes the rows, always in somebody's transaction.
type Ledger struct {
	store *store.Store
	// retention of rows in a final state.
	retention time.Duration
	round     round
}

// New returns the ledger of a store, which keeps rows for the given time after
// their final state.
func New(s *store.Store, retention time.Duration) *Ledger {
	return &Ledger{store: s, retention: retention}
}
