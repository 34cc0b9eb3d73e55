package cli

import (
	"context"
	"fmt"
	"time"
)

type dlqScheduleCmd struct {
	output
	which
	signed

	ID   string `arg:"" help:"${event_id}"`
	At   later  `required:"" placeholder:"WHEN" help:"When, within a year: 2h or 7d, meaning from now, a date, or RFC 3339."`
	Note string `placeholder:"TEXT" help:"Why; recorded."`
}

func (dlqScheduleCmd) Help() string {
	return `The dead letter is replayed by itself at that time, by the dispatchers that run on the database then. Until then it is reviewed; another schedule sets another time, and a
replay, a close or an unschedule ends it.

Examples:

    ${program} dlq schedule ${event} --at 2h --note "their maintenance ends at noon"
    ${program} dlq schedule ${event} --at 7d`
}

// maxWait is the library's bound.
const maxWait = 366 * 24 * time.Hour

// Run schedules.
func (c *dlqScheduleCmd) Run(ctx context.Context, p *Program) error {
	if wait := time.Until(c.At.Time); wait <= 0 || wait > maxWait {
		return usage("--at must lie in the future, and within a year from now")
	}
	if err := c.name(p, false); err != nil {
		return err
	}
	return act{name: "scheduled", from: replayable, json: c.JSON}.onOne(ctx, p, c.ID, c.which, func(d *desk, l letter) error {
		return d.letters.Schedule(ctx, l.Target(), c.At.Time, c.By, c.Note)
	})
}

type dlqUnscheduleCmd struct {
	output
	which
	signed

	ID   string `arg:"" help:"${event_id}"`
	Note string `placeholder:"TEXT" help:"Why; recorded."`
}

func (dlqUnscheduleCmd) Help() string {
	return `The dead letter stays reviewed, and is not replayed by itself.

Examples:

    ${program} dlq unschedule ${event} --note "still not fixed"`
}

// Run takes a schedule back.
func (c *dlqUnscheduleCmd) Run(ctx context.Context, p *Program) error {
	if err := c.name(p, false); err != nil {
		return err
	}
	return act{name: "unscheduled", from: replayable, json: c.JSON}.onOne(ctx, p, c.ID, c.which, func(d *desk, l letter) error {
		if l.ScheduledAt.IsZero() {
			return fmt.Errorf("%s is not scheduled", l)
		}
		return d.letters.Unschedule(ctx, l.Target(), c.By, c.Note)
	})
}

// later is a point in time, or how far off it is.
type later struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *later) UnmarshalText(text []byte) (err error) {
	if d, is := span(string(text)); is {
		l.Time = time.Now().Add(d)
		return nil
	}
	if l.Time, err = date(string(text)); err != nil {
		return fmt.Errorf("%q must look like 2h30m or 7d, meaning from now, or 2026-02-26, in UTC, or 2026-02-26T15:04:05Z", text)
	}
	return nil
}
