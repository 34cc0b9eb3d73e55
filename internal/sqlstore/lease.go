package sqlstore

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
)

// Who holds a partition keeps it with the same token, and what is free or has expired
// changes hands with the next. A base of 0 changes none.
const acquirePartitions = `
INSERT INTO event_leases (scope, partition, holder, token, lease_until, base)
SELECT CAST($1 AS text), p.n, CAST($2 AS text), 1, CAST($3 AS {timestamp}), p.m FROM {list of pairs $5 $6} AS p WHERE true ORDER BY p.n
ON CONFLICT (scope, partition) DO UPDATE SET
	token = CASE WHEN event_leases.holder = excluded.holder THEN event_leases.token ELSE event_leases.token + 1 END,
	holder = excluded.holder, lease_until = excluded.lease_until,
	base = CASE WHEN event_leases.holder = excluded.holder THEN COALESCE(NULLIF(excluded.base, 0), event_leases.base) ELSE event_leases.base END
WHERE event_leases.holder = excluded.holder OR event_leases.lease_until IS NULL OR event_leases.lease_until <= $4
RETURNING partition, holder, token, lease_until, base`

const bePresent = `
INSERT INTO event_lease_holders (scope, holder, present_until) VALUES (CAST($1 AS text), CAST($2 AS text), CAST($3 AS {timestamp}))
ON CONFLICT (scope, holder) DO UPDATE SET present_until = excluded.present_until`

const forgetAbsent = `DELETE FROM event_lease_holders WHERE scope = $1 AND present_until <= $4`

const readLeases = `
SELECT partition, holder, token, lease_until, base FROM event_leases
WHERE scope = $1 AND lease_until > $4 AND NOT (holder = $2 AND partition IN (SELECT n FROM {list of pairs $5 $6} AS asked))`

// countHolders counts the others as a row of partition -1.
const countHolders = `
SELECT -1, '', count(*), CAST(NULL AS {timestamp}), 0 FROM event_lease_holders WHERE scope = $1 AND holder <> $2 AND present_until > $4`

// At once: what an UNION ALL of them sees is what was there before.
const acquireAtOnce = `WITH taken AS (` + acquirePartitions + `), present AS (` + bePresent + `), absent AS (` + forgetAbsent + `)
SELECT partition, holder, token, lease_until, base FROM taken UNION ALL ` +
	readLeases + ` AND partition NOT IN (SELECT partition FROM taken) UNION ALL ` + countHolders

// AcquireLeases implements [eventing.LeaseStore].
func (s *Store) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (t eventing.LeaseTable, err error) {
	if r.Partitions == nil {
		for p := range eventing.Partitions {
			r.Partitions = append(r.Partitions, p)
		}
	}
	bases := make([]int64, len(r.Partitions))
	for i, p := range r.Partitions {
		bases[i] = r.Bases[p]
	}
	args := []any{r.Scope, r.Holder, s.time(r.Until), s.time(r.Now), s.ints(r.Partitions), s.d.Ints(bases)}
	scan := func(rows Rows) error {
		l := eventing.Lease{Scope: r.Scope}
		var until Timestamp
		if err := rows.Scan(&l.Partition, &l.Holder, &l.Token, &until, &l.Base); err != nil {
			return err
		}
		l.Until = until.Time
		switch {
		case l.Partition < 0:
			t.Holders = int(l.Token) + 1
		case l.Holder == r.Holder:
			t.Held = append(t.Held, l)
		default:
			t.Others = append(t.Others, l)
		}
		return nil
	}
	err = s.retry(ctx, func() error {
		t = eventing.LeaseTable{}
		if s.d.WritingCTE {
			return each(ctx, s.db, s.sql(acquireAtOnce), args, scan)
		}
		return s.inTx(ctx, func(tx Tx) error {
			for _, q := range []string{bePresent, forgetAbsent, acquirePartitions, readLeases, countHolders} {
				if err := each(ctx, tx, s.sql(q), args, scan); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return t, err
}

const (
	releaseLeases = `UPDATE event_leases SET holder = '', lease_until = NULL WHERE scope = $1 AND holder = $2 AND ($3 OR {in ints partition $4})`
	beAbsent      = `DELETE FROM event_lease_holders WHERE scope = $1 AND holder = $2`
)

// ReleaseLeases implements [eventing.LeaseStore].
func (s *Store) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	return s.retryTx(ctx, func(tx Tx) error {
		if _, err := tx.Exec(ctx, s.sql(releaseLeases), scope, holder, partitions == nil, s.ints(partitions)); err != nil || partitions != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql(beAbsent), scope, holder)
		return err
	})
}

// The lock holds off a takeover until this transaction has ended: who takes
// over sees all that the former holder has committed. So it has to end soon.
const checkLease = `SELECT {hurry} FROM event_leases WHERE scope = $1 AND partition = $2 AND token = $3 {for share}`

// checkLease fails unless the lease's token is current.
func (s *Store) checkLease(ctx context.Context, tx Tx, l *eventing.Lease) error {
	if l == nil {
		return nil
	}
	return walk(ctx, tx, s.leaseStep(l))
}

func (s *Store) leaseStep(l *eventing.Lease) step {
	lost := func() error { return fmt.Errorf("partition %d of %s: %w", l.Partition, l.Scope, eventing.ErrLeaseLost) }
	return s.look(checkLease, l.Scope, l.Partition, l.Token).must(some, lost)
}
