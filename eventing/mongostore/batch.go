package mongostore

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// batchDoc is a run on several events. Each of them is claimed in its name first. The run has
// succeeded if and only if its document is inserted into event_commits: whoever finds such a claim
// looks there. Who takes over a claim that has run out inserts the document first, as aborted.
type batchDoc struct {
	Consumer   string    `bson:"consumer"`
	EventIDs   []string  `bson:"eventIds"`
	Now        time.Time `bson:"now"`
	InboxUntil time.Time `bson:"inboxUntil"`
	Rev        int64     `bson:"rev"` // that the targets' documents get
}

// Untouched implements [eventing.BatchStore].
func (s *Store) Untouched(ctx context.Context, ds []eventing.Delivery) ([]bool, error) {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = inboxID(targetOf(d))
	}
	touched, err := s.touched(ctx, ids)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, d := range ds {
		if d.OrderingKey != "" {
			keys = append(keys, d.OrderingKey)
		}
	}
	busy := map[string]bool{}
	if len(keys) > 0 {
		waiting, err := find[inboxDoc](ctx, s.inbox, bson.D{eq("delivery.consumer", ds[0].Consumer), in("delivery.orderingKey", keys)},
			options.Find().SetProjection(bson.D{eq("delivery.orderingKey", 1)}))
		if err != nil {
			return nil, err
		}
		for _, doc := range waiting {
			busy[doc.Delivery.OrderingKey] = true
		}
	}
	untouched := make([]bool, len(ds))
	for i, d := range ds {
		untouched[i] = !touched[ids[i]] && !busy[d.OrderingKey]
	}
	return untouched, nil
}

// touched returns which of some documents say anything. A claim alone, which may have run out,
// does not: it is looked at when the events are claimed.
func (s *Store) touched(ctx context.Context, ids []string) (map[string]bool, error) {
	known, err := find[inboxDoc](ctx, s.inbox, bson.D{in("_id", ids)},
		options.Find().SetProjection(bson.D{eq("delivery.payload", 0), eq("delivery.history", 0)}))
	if err != nil {
		return nil, err
	}
	touched := map[string]bool{}
	batches := map[string]bool{} // whether they are committed
	for i := range known {
		doc := &known[i]
		touched[doc.ID] = doc.processed() || doc.Delivery != nil || doc.Died
		if doc.Claim == nil || doc.Claim.Batch == "" {
			continue
		}
		committed, asked := batches[doc.Claim.Batch]
		if !asked {
			if committed, err = s.completeBatch(ctx, doc.Claim.Batch); err != nil {
				return nil, err
			}
			batches[doc.Claim.Batch] = committed
		}
		touched[doc.ID] = touched[doc.ID] || committed
	}
	return touched, nil
}

// SucceedAll implements [eventing.BatchStore]. Effect and Finish get a [*Tx]. While Effect
// runs, the events are claimed, as in Succeed.
func (s *Store) SucceedAll(ctx context.Context, b eventing.BatchSuccess) error {
	tx := &Tx{store: s}
	defer tx.end(ctx)
	batch := eventing.NewID()
	if err := s.claimAll(ctx, batch, b); err != nil {
		s.unclaimAll(ctx, batch, b)
		return err
	}
	if err := b.Effect(ctx, tx); err != nil {
		s.unclaimAll(ctx, batch, b)
		return err
	}
	if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
		return err
	}
	doc, err := s.decide(ctx, batch, b, tx)
	if err != nil {
		s.unclaimAll(ctx, batch, b)
		return err
	}
	if err := eventing.Fault(ctx, eventing.FaultConcluding); err != nil {
		return err
	}
	if _, err := s.commits.InsertOne(ctx, doc); mongo.IsDuplicateKeyError(err) {
		s.unclaimAll(ctx, batch, b)
		return eventing.ErrConflict // somebody has taken over
	} else if err != nil {
		return typed(err)
	}
	return s.finish(ctx, func(ctx context.Context) error { return s.writeOut(ctx, doc) })
}

// decide makes the document that commits a batch.
func (s *Store) decide(ctx context.Context, batch string, b eventing.BatchSuccess, tx *Tx) (*commitDoc, error) {
	for i := range b.Leases {
		if err := s.rely(ctx, &b.Leases[i]); err != nil {
			return nil, err
		}
	}
	if b.Finish != nil {
		if err := b.Finish(ctx, tx); err != nil {
			return nil, err
		}
	}
	ops, err := tx.ops(ctx)
	if err != nil {
		return nil, err
	}
	rev := nextRev(0)
	for i := range ops {
		ops[i].Rev = rev
	}
	return &commitDoc{
		ID: batch, At: b.Now, Ops: ops,
		Batch: &batchDoc{Consumer: b.Consumer, EventIDs: b.EventIDs, Now: b.Now, InboxUntil: b.InboxUntil, Rev: rev},
	}, nil
}

// claimAll claims events of which nothing is known; others are a conflict, unless their claim
// has run out.
func (s *Store) claimAll(ctx context.Context, batch string, b eventing.BatchSuccess) error {
	until := b.ClaimUntil
	if until.IsZero() {
		until = b.Now.Add(defaultClaim)
	}
	lease := int64(0)
	for _, l := range b.Leases {
		lease = max(lease, l.Token)
	}
	claim := &claimDoc{Token: batch, Until: until, Batch: batch, Lease: lease}
	docs := make([]inboxDoc, len(b.EventIDs))
	for i, id := range b.EventIDs {
		t := eventing.Target{EventID: id, Consumer: b.Consumer}
		docs[i] = inboxDoc{ID: inboxID(t), Consumer: b.Consumer, EventID: id, Rev: nextRev(0), Claim: claim}
	}
	_, err := s.inbox.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if err == nil || !mongo.IsDuplicateKeyError(err) {
		return typed(err)
	}
	for _, id := range b.EventIDs { // one of them is known
		if err := s.change(ctx, eventing.Target{EventID: id, Consumer: b.Consumer}, func(c *change) error {
			switch {
			case c.doc.Claim != nil && c.doc.Claim.Token == batch:
				return errUnchanged
			case c.doc.processed(), c.doc.Delivery != nil, c.doc.Died:
				return eventing.ErrConflict
			case c.claimed(nil, b.Now):
				return eventing.ErrConflict
			}
			if err := c.abortBatch(); err != nil {
				return err
			}
			c.doc.Claim = claim
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// unclaimAll ends the claims of a batch; if that fails, they run out.
func (s *Store) unclaimAll(ctx context.Context, batch string, b eventing.BatchSuccess) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completionTimeout)
	defer cancel()
	var deletes []mongo.WriteModel
	for _, id := range b.EventIDs {
		deletes = append(deletes, mongo.NewDeleteOneModel().SetFilter(bson.D{
			eq("_id", inboxID(eventing.Target{EventID: id, Consumer: b.Consumer})), eq("claim.token", batch), eq("processedAt", nil),
		}))
	}
	_, _ = s.inbox.BulkWrite(ctx, deletes, options.BulkWrite().SetOrdered(false))
}

// concludeBatch makes inbox rows of the claims of a batch that is committed.
func (s *Store) concludeBatch(ctx context.Context, doc *commitDoc) error {
	if err := eventing.Fault(ctx, eventing.FaultCompleting); err != nil {
		return &crash{err}
	}
	b := doc.Batch
	var updates []mongo.WriteModel
	for _, id := range b.EventIDs {
		updates = append(updates, mongo.NewUpdateOneModel().
			SetFilter(bson.D{eq("_id", inboxID(eventing.Target{EventID: id, Consumer: b.Consumer})), eq("claim.token", doc.ID)}).
			SetUpdate(bson.D{
				{Key: "$set", Value: bson.D{eq("processedAt", b.Now), eq("expiresAt", b.InboxUntil), eq("generation", 0), eq("rev", b.Rev)}},
				{Key: "$unset", Value: bson.D{eq("claim", "")}},
			}))
	}
	_, err := s.inbox.BulkWrite(ctx, updates, options.BulkWrite().SetOrdered(false))
	return typed(err)
}

// completeBatch completes a batch if it is committed. again: what was read of it is no longer so.
func (s *Store) completeBatch(ctx context.Context, batch string) (again bool, err error) {
	doc, err := findOne[commitDoc](ctx, s.commits, bson.D{eq("_id", batch)})
	if err != nil || doc == nil || doc.Aborted {
		return false, err
	}
	if err := s.writeOut(ctx, doc); err != nil {
		return false, fmt.Errorf("complete a batch: %w", err)
	}
	return true, nil
}

// abortBatch makes sure that the batch that has a claim which has run out will not commit.
func (c *change) abortBatch() error {
	if c.doc.Claim == nil || c.doc.Claim.Batch == "" {
		return nil
	}
	doc, err := findOne[commitDoc](c.ctx, c.s.commits, bson.D{eq("_id", c.doc.Claim.Batch)})
	if err != nil || doc != nil && doc.Aborted {
		return err
	}
	_, err = c.s.commits.InsertOne(c.ctx, commitDoc{ID: c.doc.Claim.Batch, At: time.Now(), Aborted: true})
	if mongo.IsDuplicateKeyError(err) {
		return eventing.ErrConflict // it has, just now: whoever asks again will see
	}
	return typed(err)
}
