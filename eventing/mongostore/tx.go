package mongostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
)

// Tx gathers what is to be written together: events that are appended, and documents of the
// application's. Nothing of it is written, nor seen by anybody, before the end of the function that
// got the Tx; then all of it is, or nothing. It has to fit into one document, so into 16 MB. One goroutine
// uses it at a time.
//
// What the function writes by itself, with a collection of its own, is no part of that: it is there
// also if the function fails or the process dies, and comes again when the function does.
type Tx struct {
	store   *Store
	ended   atomic.Bool
	plain   bool            // nobody's conclusion
	session context.Context // of a transaction of the database; nil: gathered here
	rows    []eventing.OutboxRow
	writes  []op // of the application's documents
	locks   keyLocks
}

// InTx implements [eventing.OutboxStore].
func (s *Store) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	tx := &Tx{store: s, plain: true}
	defer tx.end(ctx)
	if err := fn(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return tx.commit(ctx)
}

// SessionTx returns a Tx that writes as part of the transaction of the session in ctx (see
// [mongo.NewSessionContext] and [mongo.Session.WithTransaction]), so that events are appended if and only if that
// commits. It needs a replica set. Whoever commits calls Wake, if dispatchers of this process are to look at once. It fails
// if there is no session in ctx.
func (s *Store) SessionTx(ctx context.Context) (*Tx, error) {
	if mongo.SessionFromContext(ctx) == nil {
		return nil, errors.New("mongostore: the context has no session; see mongo.NewSessionContext")
	}
	return &Tx{store: s, session: ctx}, nil
}

// Insert adds a document of the application's to a collection of the store's database. It must have
// an _id, by which it is recognised if it is written twice; so a document that is removed at once may come again
// after a crash. A document that the collection does not take, because it violates a unique
// index or a validation, holds up all that follows from the same commit.
func (tx *Tx) Insert(collection string, document any) error {
	if err := tx.writable(); err != nil {
		return err
	}
	encoded, err := raw(document)
	if err != nil {
		return err
	}
	if _, err := encoded.LookupErr("_id"); err != nil {
		return fmt.Errorf("mongostore: a document for %s has no _id", collection)
	}
	if tx.session != nil {
		_, err := tx.store.db.Collection(collection).InsertOne(tx.session, encoded)
		return typed(err)
	}
	tx.writes = append(tx.writes, op{Do: doInsert, Collection: collection, Document: encoded})
	return nil
}

// Update sets fields of the document with an _id in a collection of the store's database, once all insertions are done; if
// there is none, it does nothing. It is for what is kept of an event: the document gets a field rev, which grows with each such update and has to be left
// alone by others, so that what follows from an earlier step of the event, and is done late, does not overwrite what
// followed from a later one. So it is only for transactions of handlers and of what runs when they are concluded.
func (tx *Tx) Update(collection, id string, fields any) error {
	if err := tx.writable(); err != nil {
		return err
	}
	encoded, err := raw(fields)
	if err != nil {
		return err
	}
	switch {
	case tx.session != nil:
		_, err := tx.store.db.Collection(collection).UpdateOne(tx.session, bson.D{eq("_id", id)}, set(encoded))
		return typed(err)
	case tx.plain:
		return errors.New("mongostore: Update is for handlers: of other transactions nobody knows which came later")
	}
	tx.writes = append(tx.writes, op{Do: doUpdate, Collection: collection, ID: id, Document: encoded})
	return nil
}

// writable says why the application cannot write with the transaction.
func (tx *Tx) writable() error {
	if tx == nil {
		return tx.usable(nil)
	}
	return tx.usable(tx.store)
}

// usable says why a transaction cannot be written to.
func (tx *Tx) usable(s *Store) error {
	switch {
	case tx == nil || tx.store != s:
		return errors.New("mongostore: not a transaction of this store; take the one that InTx or the handler got")
	case tx.ended.Load():
		return errors.New("mongostore: the transaction has ended; append before its function returns")
	}
	return nil
}

// end lets go of what the transaction holds.
func (tx *Tx) end(ctx context.Context) {
	tx.ended.Store(true)
	tx.locks.release(ctx, tx.store)
}

// ops are what is to be written, as steps that follow from a commit. They have their places in
// the sequence.
func (tx *Tx) ops(ctx context.Context) ([]op, error) {
	ops := slices.Clone(tx.writes)
	slices.SortStableFunc(ops, func(a, b op) int { // of one kind together
		return cmp.Or(strings.Compare(a.Do, b.Do), strings.Compare(a.Collection, b.Collection))
	})
	docs, err := tx.docs(ctx)
	if err != nil {
		return nil, err
	}
	for i := range docs {
		o, err := insertOp(outboxCollection, docs[i])
		if err != nil {
			return nil, err
		}
		ops = append(ops, o)
	}
	return ops, tx.locks.check(ctx, tx.store)
}

// docs are the outbox documents, none of whose IDs is taken.
func (tx *Tx) docs(ctx context.Context) ([]outboxDoc, error) {
	if len(tx.rows) == 0 {
		return nil, nil
	}
	ids := make([]string, len(tx.rows))
	for i := range tx.rows {
		ids[i] = tx.rows[i].ID
	}
	if err := tx.store.untaken(ctx, ids); err != nil {
		return nil, err
	}
	first, err := tx.store.draw(ctx, outboxCounter, len(tx.rows))
	if err != nil {
		return nil, err
	}
	docs := make([]outboxDoc, len(tx.rows))
	for i := range tx.rows {
		docs[i] = newOutboxDoc(tx.rows[i])
		docs[i].Seq = first + int64(i)
	}
	return docs, nil
}

// commitDoc is a document of event_commits: a transaction that has been committed and is
// being written out, or that never will be.
type commitDoc struct {
	ID      string    `bson:"_id"`
	At      time.Time `bson:"at"`                // on the clock of whoever appended
	Aborted bool      `bson:"aborted,omitempty"` // of a batch: somebody has taken over
	Ops     []op      `bson:"ops,omitempty"`
	Batch   *batchDoc `bson:"batch,omitempty"`
}

// commit writes all, or nothing.
func (tx *Tx) commit(ctx context.Context) error {
	if len(tx.rows) == 1 && len(tx.writes) == 0 { // a single document needs no other
		return tx.appendOne(ctx)
	}
	ops, err := tx.ops(ctx)
	if err != nil {
		return err
	}
	if len(ops) == 1 {
		return tx.store.do(ctx, &ops[0])
	}
	if len(ops) == 0 {
		return nil
	}
	doc := commitDoc{ID: eventing.NewID(), At: time.Now(), Ops: ops}
	for i := range tx.rows {
		doc.At = later(tx.rows[i].CreatedAt, doc.At)
	}
	if _, err := tx.store.commits.InsertOne(ctx, doc); err != nil {
		return typed(err)
	}
	return tx.store.finish(ctx, func(ctx context.Context) error { return tx.store.writeOut(ctx, &doc) })
}

// writeOut writes what a transaction has committed, and then removes its document.
func (s *Store) writeOut(ctx context.Context, doc *commitDoc) error {
	if doc.Batch != nil {
		if err := s.concludeBatch(ctx, doc); err != nil {
			return err
		}
	}
	if err := s.redo(ctx, doc.Ops); err != nil {
		return err
	}
	_, err := s.commits.DeleteOne(ctx, bson.D{eq("_id", doc.ID)})
	return typed(err)
}

// sweepAfter is how old a commit is when others begin to write it out: usually its own
// process does.
const sweepAfter = 5 * time.Second

// sweepCommits writes out what has been committed a while ago.
func (s *Store) sweepCommits(ctx context.Context, now time.Time) error {
	left, err := find[commitDoc](ctx, s.commits, bson.D{eq("aborted", nil), eq("at", bson.D{eq("$lte", now.Add(-sweepAfter))})})
	if err != nil {
		return err
	}
	for i := range left {
		err = errors.Join(err, s.writeOut(ctx, &left[i]))
	}
	return err
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
