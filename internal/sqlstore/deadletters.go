package sqlstore

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

const selectDeadLetters = `
SELECT c.event_id, c.consumer_name, e.event_type, c.stage, c.reason_code, c.reason_message, c.attempt_count, c.attempt_history,
	c.status, c.resolution, c.notes, c.ordering_key, c.generation, c.created_at, c.updated_at, c.expires_at, c.scheduled_at, e.payload
FROM dead_letter_consumers c JOIN dead_letter_events e ON e.event_id = c.event_id `

func scanDeadLetter(rows Rows, d *eventing.DeadLetter) error {
	var history jsonText[[]eventing.Attempt]
	var acts jsonText[[]eventing.Act]
	var resolution, key text
	var stage, reason, status string
	var created, updated, expires, scheduled Timestamp
	if err := rows.Scan(&d.EventID, &d.Consumer, &d.EventType, &stage, &reason, &d.Message, &d.AttemptCount, &history,
		&status, &resolution, &acts, &key, &d.Generation, &created, &updated, &expires, &scheduled, &d.Payload); err != nil {
		return err
	}
	d.Stage, d.Reason, d.Status = eventing.Stage(stage), eventing.ReasonCode(reason), eventing.ReviewStatus(status)
	d.Resolution, d.OrderingKey, d.History, d.Acts = eventing.Resolution(resolution), string(key), history.V, acts.V
	d.CreatedAt, d.UpdatedAt, d.ExpiresAt, d.ScheduledAt = created.Time, updated.Time, expires.Time, scheduled.Time
	return nil
}

// DeadLetters implements [eventing.DeadLetterStore].
func (s *Store) DeadLetters(ctx context.Context, f eventing.DeadLetterFilter) (letters []eventing.DeadLetter, err error) {
	where, args := s.selected(f)
	err = each(ctx, s.db, s.sql(selectDeadLetters+where), args, func(rows Rows) error {
		letters = append(letters, eventing.DeadLetter{})
		return scanDeadLetter(rows, &letters[len(letters)-1])
	})
	if err != nil {
		return nil, err
	}
	return letters, s.countParked(ctx, letters)
}

const parked = `
SELECT consumer_name, ordering_key, count(*) FROM event_deliveries
WHERE {in consumer_name $1} AND {in ordering_key $2} AND state = 'parked' GROUP BY consumer_name, ordering_key`

// countParked counts what waits behind open dead letters, once for each key, of which many
// may be.
func (s *Store) countParked(ctx context.Context, letters []eventing.DeadLetter) error {
	type key struct{ consumer, key string }
	counts := map[key]int{}
	consumers, keys := map[string]bool{}, map[string]bool{}
	for i := range letters {
		if d := &letters[i]; d.OrderingKey != "" && d.Status != eventing.StatusClosed {
			consumers[d.Consumer], keys[d.OrderingKey] = true, true
		}
	}
	if len(keys) == 0 {
		return nil
	}
	args := []any{s.list(slices.Sorted(maps.Keys(consumers))), s.list(slices.Sorted(maps.Keys(keys)))}
	if err := each(ctx, s.db, s.sql(parked), args, func(rows Rows) error {
		var k key
		var n int
		err := rows.Scan(&k.consumer, &k.key, &n)
		counts[k] = n
		return err
	}); err != nil {
		return err
	}
	for i := range letters {
		if d := &letters[i]; d.Status != eventing.StatusClosed {
			d.ParkedBehind = counts[key{d.Consumer, d.OrderingKey}]
		}
	}
	return nil
}

// selected returns the end of a statement that selects dead letters. Only what is asked for
// is in it: so a page is read from an index, in its order, and no further.
func (s *Store) selected(f eventing.DeadLetterFilter) (where string, args []any) {
	var conditions []string
	require := func(yes bool, condition string, values ...any) {
		if !yes {
			return
		}
		for i := range values { // the parameters of the condition are ?
			args = append(args, values[i])
			condition = strings.Replace(condition, "?", "$"+strconv.Itoa(len(args)), 1)
		}
		conditions = append(conditions, condition)
	}
	require(f.EventID != "", "c.event_id = ?", f.EventID)
	require(f.Consumer != "", "c.consumer_name = ?", f.Consumer)
	require(f.EventType != "", "e.event_type = ?", f.EventType)
	require(f.OrderingKey != "", "c.ordering_key = ?", f.OrderingKey)
	require(f.Stage != "", "c.stage = ?", string(f.Stage))
	require(f.Reason != "", "c.reason_code = ?", string(f.Reason))
	require(f.Status != "", "c.status = ?", string(f.Status))
	require(f.OpenOnly, "c.status <> 'closed'")
	require(!f.Since.IsZero(), "c.created_at >= ?", s.time(f.Since))
	require(!f.Until.IsZero(), "c.created_at < ?", s.time(f.Until))
	require(f.After.EventID != "", "(c.created_at, c.event_id, c.consumer_name) > (?, ?, ?)", s.time(f.After.CreatedAt), f.After.EventID, f.After.Consumer)
	if len(conditions) > 0 {
		where = "WHERE " + strings.Join(conditions, " AND ")
	}
	args = append(args, f.Limit)
	return where + " ORDER BY c.created_at, c.event_id, c.consumer_name LIMIT $" + strconv.Itoa(len(args)), args
}
