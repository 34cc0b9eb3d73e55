package main

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// clock is the clock that everything goes by: producers, consumers, retries, leases. It
// runs as fast as any, and is set on where nothing would happen but waiting: to the next
// working day, or past the wait before a retry.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration // of the computer's
}

// newClock returns a clock that shows a time.
func newClock(showing time.Time) *clock { return &clock{ahead: time.Until(showing)} }

// now is as precise as both databases keep it.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead).UTC().Truncate(time.Microsecond)
}

func (c *clock) skip(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += max(d, 0)
}

// The story begins on the day of the framework's examples.
var firstDay = time.Date(2024, 1, 15, 8, 30, 0, 0, time.UTC)

// opening returns when an office opens on the nth working day of a story.
func opening(first time.Time, n int) time.Time {
	return first.AddDate(0, 0, n/workdays*7+n%workdays)
}

const workdays = 5 // of a week; a story begins on a Monday

// firstDayIn returns the day on which a story on a database begins: after those that it
// has had.
func firstDayIn(ctx context.Context, db *database) (time.Time, error) {
	var last sql.NullTime
	err := db.read.QueryRowContext(ctx, `SELECT opened_at FROM cases ORDER BY opened_at DESC LIMIT 1`).Scan(&last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return firstDay, err
	}
	day := firstDay
	for day.Before(last.Time.AddDate(0, 0, pause)) {
		day = day.AddDate(0, 0, 7)
	}
	return day, nil
}

// pause is how many days after the first of its cases a story has ended.
const pause = 70

// quiet reports whether nothing is on its way any more: all is processed, or a dead letter,
// or behind one. waits says that something waits for its next attempt.
func quiet(ctx context.Context, db *database, now time.Time) (quiet, waits bool, err error) {
	// One statement, one snapshot: an event that leads to the next is still pending
	// when that one appears.
	var busy, retrying int
	err = db.read.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM event_outbox WHERE status = 'pending') +
		(SELECT count(*) FROM event_deliveries WHERE state = 'retrying' AND due_at <= $1) +
		(SELECT count(*) FROM event_deliveries p WHERE state = 'parked' AND NOT EXISTS (SELECT 1 FROM event_deliveries h
			WHERE h.consumer_name = p.consumer_name AND h.ordering_key = p.ordering_key AND h.state IN ('dead', 'retrying'))),
		(SELECT count(*) FROM event_deliveries WHERE state = 'retrying')`, db.moment(now)).Scan(&busy, &retrying)
	return busy == 0, retrying > 0, err
}

// settle waits until nothing is on its way any more. It does not wait for retries: it sets
// the clock on to them.
func (c *clock) settle(ctx context.Context, db *database) error {
	const past = 65 * time.Second // the longest wait of routes.yaml's consumers, and some
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		switch done, waits, err := quiet(ctx, db, c.now()); {
		case err != nil:
			return err
		case done && !waits:
			return nil
		case done:
			c.skip(past)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
