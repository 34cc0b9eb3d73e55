package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

// One row for each partition; who holds it keeps it with the same token, and what
// is free or has expired changes hands with the next.
var acquireLeases = `
INSERT INTO event_leases (scope, partition, holder, token, lease_until)
SELECT CAST($1 AS text), p.column1, CAST($2 AS text), 1, CAST($3 AS {timestamp}) FROM (VALUES ` + allPartitions() + `) AS p WHERE true
ON CONFLICT (scope, partition) DO UPDATE SET
	token = CASE WHEN event_leases.holder = excluded.holder THEN event_leases.token ELSE event_leases.token + 1 END,
	holder = excluded.holder, lease_until = excluded.lease_until
WHERE event_leases.holder = excluded.holder OR event_leases.lease_until IS NULL OR event_leases.lease_until <= $4
RETURNING partition, token`

func allPartitions() string {
	values := make([]string, eventing.Partitions)
	for p := range values {
		values[p] = fmt.Sprintf("(%d)", p)
	}
	return strings.Join(values, ", ")
}

// AcquireLeases implements [eventing.LeaseStore].
func (s *Store) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (leases []eventing.Lease, err error) {
	err = s.inTx(ctx, func(tx Tx) error {
		args := []any{r.Scope, r.Holder, s.time(r.Until), s.time(r.Now)}
		return each(ctx, tx, s.sql(acquireLeases), args, func(rows Rows) error {
			l := eventing.Lease{Scope: r.Scope, Until: r.Until}
			leases = append(leases, l)
			return rows.Scan(&leases[len(leases)-1].Partition, &leases[len(leases)-1].Token)
		})
	})
	return leases, err
}

const releaseLeases = `UPDATE event_leases SET holder = '', lease_until = NULL WHERE scope = $1 AND holder = $2`

// ReleaseLeases implements [eventing.LeaseStore].
func (s *Store) ReleaseLeases(ctx context.Context, scope, holder string) error {
	return s.inTx(ctx, func(tx Tx) error {
		_, err := tx.Exec(ctx, s.sql(releaseLeases), scope, holder)
		return err
	})
}

// The lock holds off a takeover until this transaction has ended: who takes
// over sees all that the former holder has committed.
const checkLease = `SELECT 1 FROM event_leases WHERE scope = $1 AND partition = $2 AND token = $3 {for share}`

// checkLease fails unless the lease's token is current.
func (s *Store) checkLease(ctx context.Context, tx Tx, l *eventing.Lease) error {
	if l == nil {
		return nil
	}
	var current int
	found, err := one(ctx, tx, s.sql(checkLease), []any{l.Scope, l.Partition, l.Token}, &current)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("partition %d of %s: %w", l.Partition, l.Scope, eventing.ErrLeaseLost)
	}
	return nil
}
