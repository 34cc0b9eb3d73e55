package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// AppendRows implements [eventing.OutboxStore]. The _id of a row is its ID, and so unique for as long as
// the row is kept.
func (s *Store) AppendRows(ctx context.Context, tx *Tx, rows []eventing.OutboxRow) error {
	if err := tx.usable(s); err != nil {
		return err
	}
	tx.rows = append(tx.rows, rows...)
	if tx.session == nil {
		return nil
	}
	docs, err := tx.docs(tx.session)
	if err != nil {
		return err
	}
	tx.rows = nil
	_, err = s.outbox.InsertMany(tx.session, docs)
	return typed(err)
}

// untaken checks that no rows with these IDs exist, nor are there twice.
func (s *Store) untaken(ctx context.Context, ids []string) error {
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if seen[id] {
			return taken(id)
		}
		seen[id] = true
	}
	known, err := find[struct {
		ID string `bson:"_id"`
	}](ctx, s.outbox, bson.D{in("_id", ids)}, options.Find().SetProjection(bson.D{eq("_id", 1)}).SetLimit(1))
	if err != nil {
		return err
	}
	if len(known) > 0 {
		return taken(known[0].ID)
	}
	return nil
}

func taken(id string) error {
	return fmt.Errorf("mongostore: append to the outbox: a row with the ID %q exists already", id)
}

// appendOne inserts the only row of a transaction.
func (tx *Tx) appendOne(ctx context.Context) error {
	seq, err := tx.store.draw(ctx, outboxCounter, 1)
	if err != nil {
		return err
	}
	if err := tx.locks.check(ctx, tx.store); err != nil {
		return err
	}
	doc := newOutboxDoc(tx.rows[0])
	doc.Seq = seq
	_, err = tx.store.outbox.InsertOne(ctx, doc)
	if mongo.IsDuplicateKeyError(err) {
		return taken(doc.ID)
	}
	return typed(err)
}

// AppendOnce inserts those of the rows whose IDs are not there, each for itself. It is for those who keep what they
// append in a document of their own, which decides that it is, and take it out of there afterwards: after a crash it is repeated, for which
// the rows have to be kept so long. The rows are visible one by one. If some cannot be inserted for another reason, the error says so.
func (s *Store) AppendOnce(ctx context.Context, rows []eventing.OutboxRow) error {
	if len(rows) == 0 {
		return nil
	}
	first, err := s.draw(ctx, outboxCounter, len(rows))
	if err != nil {
		return err
	}
	docs := make([]outboxDoc, len(rows))
	for i := range rows {
		docs[i] = newOutboxDoc(rows[i])
		docs[i].Seq = first + int64(i)
	}
	_, err = s.outbox.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if err = withoutDuplicates(err); err != nil {
		return typed(err)
	}
	s.Wake()
	return nil
}

// withoutDuplicates is nil for an error that says no more than that documents are there already.
func withoutDuplicates(err error) error {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return err
	}
	for _, w := range bulk.WriteErrors {
		if !mongo.IsDuplicateKeyError(w.WriteError) {
			return err
		}
	}
	return nil
}
