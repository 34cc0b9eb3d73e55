package mongostore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
)

// Claim implements [eventing.DispatchStore]. It always looks at all that is pending, by an index of
// just that: rows of which a lower Seq was drawn may turn up at any time. It also completes what others
// have left.
func (s *Store) Claim(ctx context.Context, r eventing.ClaimRequest) (c eventing.Claimed, err error) {
	var dead *crash
	if err := s.sweep(ctx, r.Now); errors.As(err, &dead) {
		return c, dead.error // other errors are for the pruner to tell: dispatching goes on
	}
	c.Unsure = true
	holding, err := s.holding(ctx)
	if err != nil {
		return c, err
	}
	look := newLook(r, holding)
	if err := s.claimRows(ctx, look); err != nil {
		return c, err
	}
	c.Rows = look.rows
	slices.SortFunc(c.Rows, func(a, b eventing.OutboxRow) int { return cmp.Compare(a.Seq, b.Seq) })
	if r.Critical > 0 {
		filter := append(look.due(look.all), eq("lane", string(eventing.Critical)))
		docs, err := find[outboxDoc](ctx, s.outbox, filter, options.Find().SetSort(ascending("seq")).SetLimit(int64(r.Critical)))
		if err != nil {
			return c, err
		}
		for i := range docs {
			c.Critical = append(c.Critical, docs[i].row())
		}
	}
	if r.Unadopted {
		unadopted, err := findOne[bson.D](ctx, s.outbox, byHand(), options.FindOne().SetProjection(bson.D{eq("_id", 1)}))
		if err != nil {
			return c, err
		}
		c.Unadopted = unadopted != nil
	}
	return c, nil
}

// byHand selects rows that are not adopted.
func byHand() bson.D { return bson.D{eq("status", pending), eq("partition", nil)} }

// look is a look for rows.
type look struct {
	r       eventing.ClaimRequest
	asked   map[int]*eventing.PartitionClaim
	all     []int // partitions
	open    []int // of them those that rows are wanted of, from the first on
	later   []int // the others that rows are wanted of
	wanted  int   // rows
	exclude []int64
	holding []string // keys
	rows    []eventing.OutboxRow
}

func newLook(r eventing.ClaimRequest, holding []string) *look {
	l := &look{r: r, asked: make(map[int]*eventing.PartitionClaim, len(r.Partitions)), holding: holding, exclude: []int64{}}
	for _, p := range r.Partitions {
		l.asked[p.Partition] = &p
		l.all = append(l.all, p.Partition)
		l.exclude = append(l.exclude, p.Exclude...)
		switch {
		case p.Limit > 0 && p.After == 0:
			l.open = append(l.open, p.Partition)
			l.wanted += p.Limit
		case p.Limit > 0:
			l.later = append(l.later, p.Partition)
		}
	}
	return l
}

// due selects pending rows of partitions that are due.
func (l *look) due(partitions []int) bson.D {
	return bson.D{
		eq("status", pending), in("partition", partitions),
		eq("$or", bson.A{bson.D{eq("dueAt", nil)}, bson.D{eq("dueAt", bson.D{eq("$lte", l.r.Now)})}}),
	}
}

// claimable selects rows that may go out in their turn.
func (l *look) claimable(partitions []int, after int64) bson.D {
	filter := append(l.due(partitions), eq("seq", bson.D{eq("$gt", after), eq("$nin", l.exclude)}))
	if len(l.holding) > 0 { // but never a replay
		filter = append(filter, eq("$and", bson.A{bson.D{eq("$or", bson.A{
			bson.D{eq("generation", bson.D{eq("$gt", 0)})}, bson.D{eq("orderingKey", bson.D{eq("$nin", l.holding)})},
		})}}))
	}
	return filter
}

// claimRows looks in all partitions at once, and then in those of which the others' rows have
// left nothing.
func (s *Store) claimRows(ctx context.Context, l *look) error {
	for _, p := range l.later {
		if _, err := s.claimFrom(ctx, l, []int{p}, l.asked[p].Limit); err != nil {
			return err
		}
	}
	if len(l.open) == 0 {
		return nil
	}
	n, err := s.claimFrom(ctx, l, l.open, l.wanted)
	if err != nil || n < l.wanted {
		return err
	}
	got := map[int]bool{}
	for i := range l.rows {
		got[l.rows[i].Partition] = true
	}
	for _, p := range l.open {
		if !got[p] {
			if _, err := s.claimFrom(ctx, l, []int{p}, l.asked[p].Limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimFrom adds the first rows of some partitions, and returns how many it has seen.
func (s *Store) claimFrom(ctx context.Context, l *look, partitions []int, limit int) (int, error) {
	docs, err := find[outboxDoc](ctx, s.outbox, l.claimable(partitions, l.asked[partitions[0]].After),
		options.Find().SetSort(ascending("seq")).SetLimit(int64(limit)))
	if err != nil {
		return 0, err
	}
	for i := range docs {
		if p := l.asked[*docs[i].Partition]; p.Limit > 0 {
			p.Limit--
			l.rows = append(l.rows, docs[i].row())
		}
	}
	return len(docs), nil
}

// holding returns the ordering keys that wait for an event which could not be published.
func (s *Store) holding(ctx context.Context) ([]string, error) {
	docs, err := find[deadDoc](ctx, s.dead, bson.D{eq("consumers.holdsKey", true)},
		options.Find().SetProjection(bson.D{eq("consumers", 1)}))
	keys := []string{}
	for _, doc := range docs {
		for _, e := range doc.Consumers {
			if e.open() && e.HoldsKey && !slices.Contains(keys, e.OrderingKey) {
				keys = append(keys, e.OrderingKey)
			}
		}
	}
	return keys, err
}
