package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// claimStatement finds all that there can be to do something with, in one round trip.
func (s *Store) claimStatement() string {
	nothing := func(kind, id, seq string) string {
		return `CAST(` + seq + ` AS bigint) AS no_seq, '' AS id, ` + id + `, '', '', '', -1, CAST(NULL AS {timestamp}), '', 0, '', false, ` + kind
	}
	statement := `
SELECT * FROM (SELECT ` + nothing("0", "''", "0") + ` FROM event_outbox
	WHERE $7 AND status = 'pending' AND partition IS NULL ORDER BY seq LIMIT 1) unadopted
UNION ALL SELECT * FROM (SELECT ` + nothing("1", "''", "0") + ` FROM event_outbox
	WHERE status = 'pending' AND due_at IS NOT NULL ORDER BY seq LIMIT 1) dated
UNION ALL SELECT * FROM (SELECT ` + nothing("1", "''", "0") + ` FROM dead_letter_consumers
	WHERE holds_key IS NOT NULL AND status <> 'closed' LIMIT 1) held
UNION ALL SELECT * FROM (SELECT ` + OutboxColumns + `, 2 FROM event_outbox
	WHERE status = 'pending' AND lane = 'critical' AND {in ints partition $1} AND (due_at IS NULL OR due_at <= $4) ORDER BY seq LIMIT $6) critical
UNION ALL SELECT * FROM (` + s.d.ClaimPartitions + `) rows
UNION ALL SELECT * FROM (SELECT ` + nothing("4", "w.name", "w.drawn") + ` FROM (` + s.d.Writers + `) w WHERE $8) writers`
	return statement
}

// NotHeld is the condition that no open dead letter holds the ordering key of a row o.
// Mostly there is none at all, which is looked up once.
const NotHeld = `(NOT EXISTS (SELECT 1 FROM dead_letter_consumers WHERE holds_key IS NOT NULL AND status <> 'closed')
	OR o.generation > 0 OR NOT EXISTS (SELECT 1 FROM dead_letter_consumers h WHERE h.holds_key = o.ordering_key AND h.status <> 'closed'))`

// Claim implements [eventing.DispatchStore].
func (s *Store) Claim(ctx context.Context, r eventing.ClaimRequest) (c eventing.Claimed, err error) {
	n := len(r.Partitions)
	partitions, after, limits, exclude := make([]int64, n), make([]int64, n), make([]int64, n), make([]string, n)
	most := 0
	left := make(map[int]int, n)
	for i, p := range r.Partitions {
		partitions[i], after[i], limits[i], exclude[i] = int64(p.Partition), p.After, int64(p.Limit), s.d.IntsText(p.Exclude)
		left[p.Partition] = p.Limit
		most += p.Limit
	}
	args := []any{s.d.Ints(partitions), s.d.Ints(after), s.d.Ints(limits), s.time(r.Now), s.list(exclude), r.Critical, r.Unadopted, r.Writers}
	c.Rows = make([]eventing.OutboxRow, 0, min(most, maxExpected))
	var kind, looked int
	scanner := newRowScanner(&kind)
	err = each(ctx, s.db, s.claim, args, func(rows Rows) error {
		if err := scanner.scan(rows); err != nil {
			return err
		}
		row := &scanner.row
		switch kind {
		case 0:
			c.Unadopted = true
		case 1:
			c.Unsure = true
		case 2:
			c.Critical = append(c.Critical, *row)
		case 3:
			looked++
			if left[row.Partition]--; left[row.Partition] >= 0 {
				c.Rows = append(c.Rows, *row)
			}
		case 4:
			c.Drawn = row.Seq
			if row.EventID != "" {
				c.Writers = append(c.Writers, row.EventID)
			}
		}
		return nil
	})
	c.Rows = inOrder(c.Rows)
	c.Unsure = c.Unsure || s.d.WholeLimit && looked >= most
	return c, err
}

// inOrder sorts rows by their Seq, moving each only once.
func inOrder(rows []eventing.OutboxRow) []eventing.OutboxRow {
	if slices.IsSortedFunc(rows, func(a, b eventing.OutboxRow) int { return cmp.Compare(a.Seq, b.Seq) }) {
		return rows
	}
	type place struct {
		seq int64
		at  int
	}
	order := make([]place, len(rows))
	for i := range rows {
		order[i] = place{rows[i].Seq, i}
	}
	slices.SortFunc(order, func(a, b place) int { return cmp.Compare(a.seq, b.seq) })
	sorted := make([]eventing.OutboxRow, len(rows))
	for i, p := range order {
		sorted[i] = rows[p.at]
	}
	return sorted
}

// maxExpected bounds the rows that memory is set aside for before there are any.
const maxExpected = 1000

// held is the condition that a row is pending, and its partition the holder's. The rows
// are to be found by their seq: while statistics are old, an index of the few pending rows
// that there were may look better, and is not any more.
const held = `
WHERE {in ints seq $1} AND status || '' = 'pending' AND ((CAST(1 AS bigint) << partition) & ` + heldPartitions + `) <> 0`

// heldPartitions has a bit for each, which is tested faster than a list is searched.
const heldPartitions = `(SELECT CAST(COALESCE(sum(CAST(1 AS bigint) << l.partition), 0) AS bigint) FROM event_leases l
	WHERE l.scope = '` + eventing.DispatchScope + `' AND l.holder = $2 AND l.lease_until > $3)`

const settle = `UPDATE event_outbox SET status = 'sent', sent_at = $3, attempts = attempts + 1, routing_version = $4` + held

// failDied looks once the rows are settled, and so locked: a consumer that gives an event up
// meanwhile is either seen here, or waits in lockRow and finds its row sent.
const failDied = `UPDATE event_outbox SET status = 'failed' WHERE {in ints seq $1} AND status || '' = 'sent' AND NOT ` + notDied

// notDied is the condition that no consumer which a row is for has given its event up.
const notDied = `NOT EXISTS (SELECT 1 FROM dead_letter_consumers c
	WHERE c.event_id = event_outbox.event_id AND c.stage <> 'dispatch' AND c.status IN ('pending', 'reviewed')
		AND (event_outbox.consumer_name IS NULL OR c.consumer_name = event_outbox.consumer_name))`

const closePublished = `
UPDATE dead_letter_consumers SET status = 'closed', resolution = 'resolved', updated_at = $2
WHERE event_id = $1 AND consumer_name = '' AND status = 'replayed'
	AND NOT EXISTS (SELECT 1 FROM event_outbox WHERE seq = $3 AND status || '' = 'pending')`

const deleteSettled = `DELETE FROM event_outbox` + held

// Rows whose event has died at a consumer stay, as failed.
const deleteCompleted = deleteSettled + ` AND ` + notDied

type statement struct {
	text string
	args []any
}

// Settle implements [eventing.DispatchStore].
func (s *Store) Settle(ctx context.Context, r eventing.SettleRequest) (n int, err error) {
	seqs := s.d.Ints(seqsOf(r.Rows))
	rows := []any{seqs, r.Holder, s.time(r.Now)}
	statements := []statement{{settle, append(rows, nullable(r.RoutingVersion))}}
	switch {
	case r.Delete && r.ByCompletion:
		statements = append([]statement{{deleteCompleted, rows}}, statements...)
	case r.Delete:
		statements = []statement{{deleteSettled, rows}}
	}
	err = s.retryTx(ctx, func(tx Tx) error {
		n = 0
		if err := s.lockUnpublished(ctx, tx, r.Rows); err != nil {
			return err
		}
		for _, q := range statements {
			settled, err := tx.Exec(ctx, s.sql(q.text), q.args...)
			if err != nil {
				return err
			}
			n += int(settled)
		}
		if r.ByCompletion {
			if _, err := tx.Exec(ctx, s.sql(failDied), seqs); err != nil {
				return err
			}
		}
		for _, row := range r.Rows {
			if row.Generation == 0 || row.Consumer != "" {
				continue
			}
			if _, err := tx.Exec(ctx, s.sql(closePublished), row.EventID, s.time(r.Now), row.Seq); err != nil {
				return err
			}
		}
		return eventing.Fault(ctx, eventing.FaultSettling)
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// lockUnpublished locks the dead letters that a settlement may close before its rows, as
// those do who act on dead letters.
func (s *Store) lockUnpublished(ctx context.Context, tx Tx, rows []eventing.OutboxRow) error {
	var events []string
	for _, row := range rows {
		if row.Generation > 0 && row.Consumer == "" {
			events = append(events, row.EventID)
		}
	}
	slices.Sort(events)
	for _, id := range slices.Compact(events) {
		var locked int
		if _, err := one(ctx, tx, s.sql(lockDeadLetter), []any{id, ""}, &locked); err != nil {
			return err
		}
	}
	return nil
}

// seqsOf names rows by their Seq, not by their IDs: those of hand-written rows need not
// be text.
func seqsOf(rows []eventing.OutboxRow) []int64 {
	seqs := make([]int64, len(rows))
	for i, row := range rows {
		seqs[i] = row.Seq
	}
	return seqs
}

const expedite = `UPDATE event_outbox SET lane = '` + string(eventing.Expedited) + `'` + held

// Expedite implements [eventing.DispatchStore].
func (s *Store) Expedite(ctx context.Context, r eventing.SettleRequest) error {
	return s.retryTx(ctx, func(tx Tx) error {
		if _, err := tx.Exec(ctx, s.sql(expedite), s.d.Ints(seqsOf(r.Rows)), r.Holder, s.time(r.Now)); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultExpediting)
	})
}

const failRow = `
UPDATE event_outbox SET status = 'failed', sent_at = $3, attempts = attempts + 1, last_error = $4, routing_version = $5` + held

// FailDispatch implements [eventing.DispatchStore].
func (s *Store) FailDispatch(ctx context.Context, f eventing.DispatchFailure) error {
	return s.retryTx(ctx, func(tx Tx) error {
		var locked int // before the row, as by those who act on dead letters
		if _, err := one(ctx, tx, s.sql(lockDeadLetter), []any{f.Row.EventID, f.Row.Consumer}, &locked); err != nil {
			return err
		}
		marked, err := tx.Exec(ctx, s.sql(failRow), s.d.Ints([]int64{f.Row.Seq}), f.Holder, s.time(f.Now), f.Message, nullable(f.RoutingVersion))
		if err != nil || marked == 0 {
			return err
		}
		dl := death{
			eventID: f.Row.EventID, consumer: f.Row.Consumer, eventType: f.Row.EventType, payload: f.Row.Payload,
			stage: eventing.StageDispatch, reason: f.Reason, message: f.Message, orderingKey: f.Row.OrderingKey,
			generation: f.Row.Generation, now: f.Now, until: f.DeadLetterUntil,
		}
		if f.HoldKey {
			dl.holdsKey = f.Row.OrderingKey
		}
		if err := s.recordDeath(ctx, tx, dl); err != nil {
			return err
		}
		return eventing.Fault(ctx, eventing.FaultDispatchFailing)
	})
}
