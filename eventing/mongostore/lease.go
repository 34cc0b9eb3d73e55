package mongostore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
)

// scopeDoc is a document of event_leases: all leases of a scope, and who is there to hold
// them. It is changed as a whole.
type scopeDoc struct {
	ID         string      `bson:"_id"` // the scope
	Rev        int64       `bson:"rev"`
	Partitions []leaseDoc  `bson:"partitions"` // by number
	Holders    []holderDoc `bson:"holders"`
}

type leaseDoc struct {
	Holder string    `bson:"holder"` // empty: free
	Token  int64     `bson:"token"`
	Until  time.Time `bson:"until"`
	Base   int64     `bson:"base"`
}

type holderDoc struct {
	Holder string    `bson:"holder"`
	Until  time.Time `bson:"until"`
}

// AcquireLeases implements [eventing.LeaseStore].
func (s *Store) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (t eventing.LeaseTable, err error) {
	doc, err := s.changeScope(ctx, r.Scope, func(doc *scopeDoc) {
		doc.present(r)
		for p := range doc.Partitions {
			if r.Partitions == nil || slices.Contains(r.Partitions, p) {
				doc.Partitions[p].acquire(r, p)
			}
		}
	})
	if err != nil {
		return t, err
	}
	t.Holders = len(doc.Holders)
	for p, l := range doc.Partitions {
		lease := eventing.Lease{Scope: r.Scope, Partition: p, Holder: l.Holder, Token: l.Token, Until: l.Until, Base: l.Base}
		switch {
		case !l.Until.After(r.Now):
		case l.Holder == r.Holder:
			t.Held = append(t.Held, lease)
		case l.Holder != "":
			t.Others = append(t.Others, lease)
		}
	}
	return t, nil
}

// present makes the holder known, and forgets those that are gone.
func (d *scopeDoc) present(r eventing.LeaseRequest) {
	d.Holders = slices.DeleteFunc(d.Holders, func(h holderDoc) bool { return h.Holder == r.Holder || !h.Until.After(r.Now) })
	d.Holders = append(d.Holders, holderDoc{r.Holder, r.Until})
}

// acquire renews a lease, or takes it if it is free.
func (l *leaseDoc) acquire(r eventing.LeaseRequest, partition int) {
	had := l.Holder == r.Holder
	if !had && (l.Holder == "" || !l.Until.After(r.Now)) {
		l.Holder = r.Holder
		l.Token++
	}
	if l.Holder == r.Holder { // also if it has run out: nobody wanted it
		l.Until = r.Until
		if base := r.Bases[partition]; had && base != 0 {
			l.Base = base
		}
	}
}

// ReleaseLeases implements [eventing.LeaseStore].
func (s *Store) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	_, err := s.changeScope(ctx, scope, func(doc *scopeDoc) {
		for p := range doc.Partitions {
			if l := &doc.Partitions[p]; l.Holder == holder && (partitions == nil || slices.Contains(partitions, p)) {
				l.Holder, l.Until = "", time.Time{}
			}
		}
		if partitions == nil {
			doc.Holders = slices.DeleteFunc(doc.Holders, func(h holderDoc) bool { return h.Holder == holder })
		}
	})
	return err
}

// changeScope changes the leases of a scope, again if somebody else was faster.
func (s *Store) changeScope(ctx context.Context, scope string, change func(doc *scopeDoc)) (*scopeDoc, error) {
	for try := range maxTries {
		doc, err := s.scope(ctx, scope)
		if err != nil {
			return nil, err
		}
		rev := doc.Rev
		change(doc)
		doc.Rev = nextRev(rev)
		var won bool
		if rev == 0 {
			_, err = s.leases.InsertOne(ctx, doc)
			if won = err == nil; mongo.IsDuplicateKeyError(err) {
				err = nil
			}
		} else {
			var replaced *mongo.UpdateResult
			replaced, err = s.leases.ReplaceOne(ctx, bson.D{eq("_id", scope), eq("rev", rev)}, doc)
			won = err == nil && replaced.MatchedCount == 1
		}
		if won || err != nil {
			return doc, typed(err)
		}
		if err := pause(ctx, try); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("leases of %s: %w", scope, errOvertaken)
}

// scope reads the leases of a scope.
func (s *Store) scope(ctx context.Context, scope string) (*scopeDoc, error) {
	doc, err := findOne[scopeDoc](ctx, s.leases, bson.D{eq("_id", scope)})
	if doc == nil {
		doc = &scopeDoc{ID: scope}
	}
	for len(doc.Partitions) < eventing.Partitions {
		doc.Partitions = append(doc.Partitions, leaseDoc{})
	}
	return doc, err
}

// rely fails if a lease is another's by now. Unordered consumers have none. It is not one with
// the write that follows: see the package's documentation.
func (s *Store) rely(ctx context.Context, l *eventing.Lease) error {
	if l == nil {
		return nil
	}
	known, err := s.scope(ctx, l.Scope)
	if err != nil {
		return err
	}
	if known.Partitions[l.Partition].Token != l.Token {
		return eventing.ErrLeaseLost
	}
	return nil
}

// dispatched returns the partitions that a dispatcher holds.
func (s *Store) dispatched(ctx context.Context, holder string, now time.Time) (map[int]bool, error) {
	known, err := s.scope(ctx, eventing.DispatchScope)
	held := map[int]bool{}
	for p, l := range known.Partitions {
		held[p] = l.Holder == holder && l.Until.After(now)
	}
	return held, err
}
