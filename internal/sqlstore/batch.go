package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// What is known of some events, by their IDs, or of others of their keys. Subqueries, as each
// has one row to look up by its key: for a list, the planner may settle on reading a whole
// table, while that is small, and stay with it when it has grown.
const touched = `
SELECT e.value, '' FROM {list $2} AS e WHERE coalesce(
	(SELECT 1 FROM processed_events p WHERE p.event_id = e.value AND p.consumer_name = $1),
	(SELECT 1 FROM event_deliveries d WHERE d.consumer_name = $1 AND d.event_id = e.value),
	(SELECT 1 FROM dead_letter_consumers c WHERE c.consumer_name = $1 AND c.event_id = e.value)) = 1
UNION ALL SELECT '', k.value FROM {list $3} AS k
	WHERE (SELECT 1 FROM event_deliveries o WHERE o.consumer_name = $1 AND o.ordering_key = k.value LIMIT 1) = 1`

// Untouched implements [eventing.BatchStore].
func (s *Store) Untouched(ctx context.Context, ds []eventing.Delivery) ([]bool, error) {
	if len(ds) == 0 {
		return nil, nil
	}
	var ids, keys []string
	for i := range ds {
		ids = append(ids, ds[i].EventID)
		if key := ds[i].OrderingKey; key != "" {
			keys = append(keys, key)
		}
	}
	known, busy := map[string]bool{}, map[string]bool{}
	if err := each(ctx, s.db, s.sql(touched), []any{ds[0].Consumer, s.list(ids), s.list(keys)}, func(rows Rows) error {
		var id, key string
		err := rows.Scan(&id, &key)
		known[id], busy[key] = true, true
		return err
	}); err != nil {
		return nil, err
	}
	untouched := make([]bool, len(ds))
	for i, d := range ds {
		untouched[i] = !known[d.EventID] && (d.OrderingKey == "" || !busy[d.OrderingKey])
	}
	return untouched, nil
}

// SucceedAll implements [eventing.BatchStore].
func (s *Store) SucceedAll(ctx context.Context, b eventing.BatchSuccess) error {
	handled := false
	err := InTx(ctx, s.db, func(tx Tx) error {
		if err := b.Effect(ctx, tx.Raw()); err != nil {
			return err
		}
		handled = true
		if err := eventing.Fault(ctx, eventing.FaultHandled); err != nil {
			return err
		}
		return s.concludeWith(ctx, tx, b.Finish, s.batchSteps(b)...)
	})
	if handled && s.d.Broken(err) {
		return fmt.Errorf("%w: %w", eventing.ErrBrokenTx, err)
	}
	return err
}

// In the order in which others lock them, as in all that follows: nobody waits in a circle.
const insertInboxes = `
INSERT INTO processed_events (event_id, consumer_name, processed_at, expires_at)
SELECT e.value, CAST($2 AS text), CAST($3 AS {timestamp}), CAST($4 AS {timestamp}) FROM {list $1} AS e WHERE true ORDER BY e.value` + orNothing

const anyDeliveries = `SELECT 1 FROM {list $2} AS e
WHERE (SELECT 1 FROM event_deliveries d WHERE d.consumer_name = $1 AND d.event_id = e.value) = 1 LIMIT 1`

// batchSteps record that the events are processed, under leases that hold. None may be known: what another has
// begun is waited for by the insert, so the look at the deliveries comes after it.
func (s *Store) batchSteps(b eventing.BatchSuccess) (steps []step) {
	if len(b.Leases) > 0 {
		steps = append(steps, s.leasesStep(b.Leases))
	}
	ids := s.list(b.EventIDs)
	elsewhere := func() error {
		return fmt.Errorf("one of %d events at %s: %w", len(b.EventIDs), b.Consumer, eventing.ErrConflict)
	}
	return append(steps,
		s.change(insertInboxes, ids, b.Consumer, s.time(b.Now), s.time(b.InboxUntil)).must(exactly(len(b.EventIDs)), elsewhere),
		s.look(anyDeliveries, b.Consumer, ids).must(none, elsewhere))
}

const checkLeases = `
SELECT {hurry} FROM event_leases JOIN {list of pairs $2 $3} AS held ON held.n = partition AND held.m = token
WHERE scope = $1 ORDER BY partition {for share}`

// leasesStep fails unless the tokens of all leases, which are of one scope, are current.
func (s *Store) leasesStep(leases []eventing.Lease) step {
	leases = slices.SortedFunc(slices.Values(leases), func(a, b eventing.Lease) int { return cmp.Compare(a.Partition, b.Partition) })
	partitions, tokens := make([]int64, len(leases)), make([]int64, len(leases))
	for i, l := range leases {
		partitions[i], tokens[i] = int64(l.Partition), l.Token
	}
	lost := func() error {
		return fmt.Errorf("one of %d partitions of %s: %w", len(leases), leases[0].Scope, eventing.ErrLeaseLost)
	}
	return s.look(checkLeases, leases[0].Scope, s.d.Ints(partitions), s.d.Ints(tokens)).must(exactly(len(leases)), lost)
}
