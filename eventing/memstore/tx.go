package memstore

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/waybill-go/waybill/eventing"
)

// Tx is a transaction: see [Store.InTx]. Beside events it takes data of the
// application's, so that there is something for events to be atomic with. One
// goroutine uses it at a time; what is written after its end has no effect.
type Tx struct {
	store *Store
	ended atomic.Bool
	wakes bool // rows were appended

	outbox     changes[string, outboxRow]
	inbox      changes[eventing.Target, inboxRow]
	deliveries changes[eventing.Target, delivery]
	dead       changes[string, deadEvent]
	values     changes[string, string]
	lists      map[string][]string
	relied     map[leaseKey]int64 // tokens that have to be current still at the commit
}

// Set sets a value of the application's.
func (tx *Tx) Set(key, value string) { tx.values.put(key, value) }

// Get returns a value of the application's as this transaction sees it.
func (tx *Tx) Get(key string) (value string, ok bool) {
	if v := tx.values.rows[key]; v != nil {
		return *v, true
	}
	return tx.store.Get(key)
}

// Append adds a value to the end of a list of the application's.
func (tx *Tx) Append(list, value string) {
	if tx.lists == nil {
		tx.lists = map[string][]string{}
	}
	tx.lists[list] = append(tx.lists[list], value)
}

// InTx implements [eventing.OutboxStore]. It waits for its turn to write for as
// long as ctx lives; if ctx has ended by the time that fn returns, the transaction
// is rolled back and the error is that of ctx. fn must not begin another
// transaction of the store, as all methods that write do.
func (s *Store) InTx(ctx context.Context, fn func(tx *Tx) error) error { return s.write(ctx, fn) }

var errNested = errors.New("memstore: a transactional handler cannot begin a transaction, because writers take turns; " +
	"use the handler's own, see eventing.TxFromContext")

// write runs fn in a transaction.
func (s *Store) write(ctx context.Context, fn func(tx *Tx) error) error {
	if outer, ok := eventing.TxFromContext[*Tx](ctx); ok && outer.store == s && !outer.ended.Load() {
		return errNested // rather than wait for ourselves
	}
	select {
	case s.writer <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.writer }() // also if fn panics: then nothing is applied
	if err := ctx.Err(); err != nil {
		return err
	}
	tx := s.begin()
	defer tx.ended.Store(true)
	if err := fn(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tx.commit(); err != nil {
		return err
	}
	if tx.wakes {
		s.Wake()
	}
	return nil
}

// read runs fn on what is committed. fn must not write.
func (s *Store) read(ctx context.Context, fn func(tx *Tx)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	fn(s.begin())
	return nil
}

func (s *Store) begin() *Tx {
	tx := &Tx{store: s}
	tx.outbox.table, tx.inbox.table, tx.deliveries.table = &s.outbox, &s.inbox, &s.deliveries
	tx.dead.table, tx.values.table = &s.dead, &s.values
	return tx
}

// commit applies everything at once. Leases are taken over also while a handler's
// transaction is open, so what it relied on is checked here again.
func (tx *Tx) commit() error {
	s := tx.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, token := range tx.relied {
		if s.leases[key].token != token {
			return eventing.ErrLeaseLost
		}
	}
	tx.outbox.apply()
	tx.inbox.apply()
	tx.deliveries.apply()
	tx.dead.apply()
	tx.values.apply()
	s.committedSeq = s.lastSeq
	for list, values := range tx.lists {
		s.lists[list] = append(s.lists[list], values...)
	}
	return nil
}

// usable says why a transaction that came from outside cannot be written to.
func (tx *Tx) usable(s *Store) error {
	switch {
	case tx == nil || tx.store != s:
		return errors.New("memstore: not a transaction of this store; take the one that InTx or the handler got")
	case tx.ended.Load():
		return errors.New("memstore: the transaction has ended; append before its function returns")
	}
	return nil
}
