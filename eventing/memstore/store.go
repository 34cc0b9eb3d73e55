// Package memstore keeps everything in memory, for tests and for trying things
// out. It is also the state model in its shortest executable form: what a row
// means, and what commits with what, is all here, and nothing else is.
//
// One transaction writes at a time, as in SQLite; readers never wait for it and
// see what was last committed. Nothing survives the process.
package memstore

import (
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Store is a store for the producer's and the consumer's side, whose
// transactions are [*Tx]. It is safe for concurrent use.
//
// A transaction ends at its commit, as long as its context still lives then;
// until that moment nobody else sees anything of it. Transactions take turns: one
// that is begun inside another waits until its context ends.
type Store struct {
	eventing.Waker

	writer chan struct{} // full while a transaction is open

	// Only the open transaction moves these on; what it took is not given back.
	lastSeq, lastPosition int64

	// mu is held for reading by readers, and for writing by commits and leases. The
	// open transaction reads the tables without it: nobody else could change them.
	mu           sync.RWMutex
	committedSeq int64                            // the highest
	outbox       table[string, outboxRow]         // event_outbox, by row ID
	inbox        table[eventing.Target, inboxRow] // processed_events
	deliveries   table[eventing.Target, delivery] // event_deliveries
	dead         table[string, deadEvent]         // dead_letter_events and their consumers, by event ID
	leases       map[leaseKey]lease               // event_leases; not transactional, see commit
	holders      map[string]map[string]time.Time  // event_lease_holders, by scope; until when
	values       table[string, string]            // the application's
	lists        map[string][]string              // the application's
	pending      queue                            // index: pending rows that are adopted, by Seq
	unadopted    queue                            // index: pending rows that are not
	lanes        map[lane]queue                   // index: deliveries of a consumer's key, by position
}

var (
	_ eventing.OutboxStore[*Tx] = (*Store)(nil)
	_ eventing.DispatchStore    = (*Store)(nil)
	_ eventing.ConsumerStore    = (*Store)(nil)
	_ eventing.DeadLetterStore  = (*Store)(nil)
	_ eventing.PruneStore       = (*Store)(nil)
	_ eventing.AdminStore       = (*Store)(nil)
)

// New returns an empty store.
func New() *Store {
	s := &Store{
		writer:     make(chan struct{}, 1),
		outbox:     table[string, outboxRow]{rows: map[string]*outboxRow{}},
		inbox:      table[eventing.Target, inboxRow]{rows: map[eventing.Target]*inboxRow{}},
		deliveries: table[eventing.Target, delivery]{rows: map[eventing.Target]*delivery{}},
		dead:       table[string, deadEvent]{rows: map[string]*deadEvent{}},
		values:     table[string, string]{rows: map[string]*string{}},
		leases:     map[leaseKey]lease{},
		holders:    map[string]map[string]time.Time{},
		lists:      map[string][]string{},
		lanes:      map[lane]queue{},
	}
	s.outbox.index = s.indexOutbox
	s.deliveries.index = s.indexDelivery
	return s
}

// Get returns a committed value of the application's: see [Tx.Set].
func (s *Store) Get(key string) (value string, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if v := s.values.rows[key]; v != nil {
		return *v, true
	}
	return "", false
}

// List returns the committed values of a list of the application's, in the
// order of their commits: see [Tx.Append].
func (s *Store) List(list string) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.lists[list])
}

type status string

const (
	pending status = "pending"
	sent    status = "sent"
	failed  status = "failed"
)

type outboxRow struct {
	eventing.OutboxRow
	status    status
	settledAt time.Time
	version   string // of the routing table, when it was settled
	unadopted bool   // written by hand: ordering key and partition are not known yet
	again     bool   // adopted or requeued: later rows may have been dispatched before it
}

type inboxRow struct {
	until      time.Time
	generation int
}

type delivery struct {
	eventing.Delivery
	position      int64
	state         eventing.State
	attempts      int
	priorAttempts int
	history       []eventing.Attempt
	dueAt         time.Time
	claimToken    string
	claimUntil    time.Time
}

// lane is what an ordered consumer handles one after the other.
type lane struct{ consumer, key string }

// laneOf gives a delivery without a key a lane of its own.
func laneOf(d eventing.Delivery) lane {
	if d.OrderingKey == "" {
		return lane{d.Consumer, d.EventID}
	}
	return lane{d.Consumer, d.OrderingKey}
}

func targetOf(d eventing.Delivery) eventing.Target {
	return eventing.Target{EventID: d.EventID, Consumer: d.Consumer}
}

func (s *Store) queueOf(r *outboxRow) *queue {
	switch {
	case r == nil || r.status != pending:
		return nil
	case r.unadopted:
		return &s.unadopted
	}
	return &s.pending
}

func (s *Store) indexOutbox(before, after *outboxRow) {
	from, to := s.queueOf(before), s.queueOf(after)
	if from == to {
		return
	}
	if from != nil {
		from.remove(before.Seq)
	}
	if to != nil {
		to.add(after.Seq, after.ID)
	}
}

func (s *Store) indexDelivery(before, after *delivery) {
	if before != nil && after != nil && laneOf(before.Delivery) == laneOf(after.Delivery) {
		return
	}
	if before != nil {
		l := laneOf(before.Delivery)
		q := s.lanes[l]
		q.remove(before.position)
		if s.lanes[l] = q; len(q) == 0 {
			delete(s.lanes, l)
		}
	}
	if after != nil {
		l := laneOf(after.Delivery)
		q := s.lanes[l]
		q.add(after.position, after.EventID)
		s.lanes[l] = q
	}
}
