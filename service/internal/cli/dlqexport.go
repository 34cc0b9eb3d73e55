package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/eventing"
)

type dlqExportCmd struct {
	output
	selecting

	Open bool `help:"Open ones only. Default: closed ones too."`
}

func (dlqExportCmd) Help() string {
	return `Writes each dead letter as a JSON object {"dlq_entry": …} on a line of its own, the oldest first, with the whole event; --json changes nothing. Its id is made from the
event's and the consumer's: it is the same in every export. A status is pending_review, retry_scheduled (also while a replay is under way), resolved or discarded.

Examples:

    ${program} dlq export > dead-letters.ndjson
    ${program} dlq export --consumer ${consumer} --open | jq -r .dlq_entry.last_failure_reason`
}

// Run exports.
func (c *dlqExportCmd) Run(ctx context.Context, p *Program) error {
	s, err := c.selection()
	if err != nil {
		return err
	}
	var failed undecided
	s.OpenOnly, s.Undecided = c.Open, failed.add
	return withDesk(ctx, p, func(d *desk) error {
		w := bufio.NewWriter(p.Stdout)
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		if err := d.letters.Select(ctx, s, func(dl eventing.DeadLetter) error {
			return lines.Encode(map[string]dlqEntry{"dlq_entry": entryOf(dl)})
		}); err != nil {
			return err
		}
		return errors.Join(w.Flush(), failed.err())
	})
}

// dlqEntry is a dead letter as the exchange format has it.
type dlqEntry struct {
	ID                string    `json:"id"`
	OriginalEvent     any       `json:"original_event"`
	Subscriber        string    `json:"subscriber"`
	FailureCount      int       `json:"failure_count"`
	LastFailureReason string    `json:"last_failure_reason"`
	FirstFailureAt    time.Time `json:"first_failure_at"`
	LastFailureAt     time.Time `json:"last_failure_at"`
	Status            string    `json:"status"`
}

func entryOf(dl eventing.DeadLetter) dlqEntry {
	e := dlqEntry{
		ID: entryID(dl.Target()), OriginalEvent: jsonOrText(dl.Payload), Subscriber: dl.Consumer,
		FailureCount:      max(dl.AttemptCount, 1), // what could not be sent has failed, too
		LastFailureReason: string(dl.Reason), FirstFailureAt: dl.CreatedAt.UTC(), LastFailureAt: dl.CreatedAt.UTC(), Status: "pending_review",
	}
	if n := len(dl.History); n > 0 {
		e.FirstFailureAt, e.LastFailureAt = dl.History[0].At.UTC(), dl.History[n-1].At.UTC()
	}
	switch {
	case dl.Status == eventing.StatusClosed:
		e.Status = string(dl.Resolution)
	case dl.Status == eventing.StatusReplayed, !dl.ScheduledAt.IsZero():
		e.Status = "retry_scheduled"
	}
	return e
}

// entryNamespace is that of the UUIDs of entries.
var entryNamespace = uuid.MustParse("8d1c4b0e-5267-4d3a-9c71-2f6e05b8d943")

// entryID returns a UUID of version 5 (RFC 9562): the same for the same dead letter, for ever.
func entryID(t eventing.Target) string {
	return uuid.NewSHA1(entryNamespace, []byte(t.EventID+"\x00"+t.Consumer)).String()
}
