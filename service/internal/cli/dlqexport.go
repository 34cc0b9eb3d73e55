package cli

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // what a UUID of version 5 is made with; nothing is kept safe by it
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
var entryNamespace = [16]byte{0x8d, 0x1c, 0x4b, 0x0e, 0x52, 0x67, 0x4d, 0x3a, 0x9c, 0x71, 0x2f, 0x6e, 0x05, 0xb8, 0xd9, 0x43}

// entryID returns a UUID of version 5 (RFC 9562): the same for the same dead letter, for ever.
func entryID(t eventing.Target) string {
	h := sha1.New() //nolint:gosec // see the import
	h.Write(entryNamespace[:])
	h.Write([]byte(t.EventID + "\x00" + t.Consumer))
	b := h.Sum(nil)
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
