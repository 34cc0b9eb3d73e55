package eventing

import (
	"context"
	"time"
)

// scheduledEvery is how long after its time a scheduled replay begins at most. All that an
// idle dispatcher asks is to stay below two queries a second.
const scheduledEvery = 10 * time.Second

const scheduledBatch = 100

// keepSchedule replays dead letters when they are scheduled to be, until ctx ends.
func (d *Dispatcher) keepSchedule(ctx context.Context) {
	tick := time.NewTicker(scheduledEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := d.replayScheduled(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Logger.Warn("dispatcher: replaying what is scheduled failed; will try again", "error", err, "in", scheduledEvery)
		}
	}
}

// replayScheduled replays what is due, and returns how much that was.
func (d *Dispatcher) replayScheduled(ctx context.Context) (total int, err error) {
	for {
		n, err := d.store.ReplayScheduled(ctx, d.cfg.Now(), scheduledBatch)
		if total += n; n > 0 {
			d.nudge()
		}
		if err != nil || n < scheduledBatch {
			return total, err
		}
	}
}
