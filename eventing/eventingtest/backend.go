package eventingtest

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/waybill-go/waybill/eventing"
)

// Store is all that a store offers.
type Store[Tx any] interface {
	eventing.OutboxStore[Tx]
	eventing.DispatchStore
	eventing.ConsumerStore
	eventing.DeadLetterStore
	eventing.PruneStore
	eventing.AdminStore
}

// Database is a store, and what the suite does to its tables beside it. A
// backend's test embeds its store in a struct with these methods.
type Database[Tx any] interface {
	Store[Tx]
	// Effect adds a row (consumer, eventID) to a table in tx. The table must have no
	// uniqueness: it would hide that a handler's effect happened twice.
	Effect(ctx context.Context, tx Tx, consumer, eventID string) error
	// Effects returns the rows of that table in the order of their insertion.
	Effects(ctx context.Context) ([]Effect, error)
	// InsertByHand inserts into event_outbox what a person would: id, event_id,
	// event_type, payload, status 'pending' and attempts 0, no other column.
	InsertByHand(ctx context.Context, id, eventID, eventType string, payload []byte) error
	// ReplayBySQL runs the documented INSERT … SELECT … || '-replay' for an event ID
	// and returns how many rows it inserted.
	ReplayBySQL(ctx context.Context, eventID string) (int, error)
	// OutboxStatus returns the statuses of an event's outbox rows in the order of
	// their sequence.
	OutboxStatus(ctx context.Context, eventID string) ([]string, error)
	// RoutingVersions returns the routing versions of an event's outbox rows in the order of
	// their sequence; "" for null.
	RoutingVersions(ctx context.Context, eventID string) ([]string, error)
}

// Effect is what a handler of the suite does: a row that says so.
type Effect struct{ Consumer, EventID string }

// Capabilities are what stores may differ in.
type Capabilities struct {
	// ConcurrentWriters: two transactions that write different rows can be open at
	// the same time. False where there is a single writer.
	ConcurrentWriters bool
	// BinaryPayload: the payload column takes bytes that are not UTF-8.
	BinaryPayload bool
}

// Backend is a kind of store whose transactions are of type Tx.
type Backend[Tx any] struct {
	// Open returns a new, empty database. It registers with tb what closes it, and
	// fails tb if there is no server to be had. Called from parallel tests.
	Open         func(tb testing.TB) Database[Tx]
	Capabilities Capabilities
	// CrashesPerPoint is for stores whose steps take long. Each story of the Crash subject is run with
	// that many crashes at each of the fault points that it is about; 0: with one each time that it passes any
	// fault point, which takes eight times as long as 1. The choice is always the same, and has
	// all fault points. Run all of them now and then.
	CrashesPerPoint int
}

// tests are the tests of one subject, by the promise that they check.
type tests[Tx any] map[string]func(w *world[Tx])

// TestStore checks that a store keeps all promises. Each test has a database of its
// own; they run in parallel.
func TestStore[Tx any](t *testing.T, b Backend[Tx]) {
	for _, subject := range []struct {
		name  string
		tests tests[Tx]
	}{
		{"Append", appendTests[Tx]()},
		{"Dispatch", dispatchTests[Tx]()},
		{"DeleteSent", deleteSentTests[Tx]()},
		{"Expedite", expediteTests[Tx]()},
		{"DispatchFailure", dispatchFailureTests[Tx]()},
		{"Lease", leaseTests[Tx]()},
		{"Share", shareTests[Tx]()},
		{"Completion", completionTests[Tx]()},
		{"RoutingVersion", routingVersionTests[Tx]()},
		{"Arrive", arriveTests[Tx]()},
		{"Conclude", concludeTests[Tx]()},
		{"Retry", retryTests[Tx]()},
		{"Exhausted", exhaustedTests[Tx]()},
		{"Redeliver", redeliverTests[Tx]()},
		{"Prepare", prepareTests[Tx]()},
		{"Gate", gateTests[Tx]()},
		{"Batch", batchTests[Tx]()},
		{"StaleWorker", staleTests[Tx]()},
		{"DeadLetter", deadLetterTests[Tx]()},
		{"Operate", operateTests[Tx]()},
		{"Force", forceTests[Tx]()},
		{"Browse", browseTests[Tx]()},
		{"Adopt", adoptTests[Tx]()},
		{"Quarantine", quarantineTests[Tx]()},
		{"Prune", pruneTests[Tx]()},
		{"Requeue", requeueTests[Tx]()},
		{"Audit", auditTests[Tx]()},
		{"Backlog", backlogTests[Tx]()},
		{"Live", liveTests[Tx]()},
	} {
		t.Run(subject.name, func(t *testing.T) {
			t.Parallel()
			for _, name := range slices.Sorted(maps.Keys(subject.tests)) {
				test := subject.tests[name]
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(newWorld(t, b, NewFaults()))
				})
			}
		})
	}
	t.Run("Crash", func(t *testing.T) {
		t.Parallel()
		testCrashes(t, b)
	})
}
