package eventing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Standing is what became of an event at a consumer.
type Standing string

// The standings. The first that holds counts.
const (
	StandingPending   Standing = "pending"   // its outbox row has yet to be sent
	StandingProcessed Standing = "processed" // the inbox has it
	StandingRetrying  Standing = "retrying"
	StandingParked    Standing = "parked"
	StandingDiscarded Standing = "discarded" // its dead letter was given up
	StandingDead      Standing = "dead"      // it has an open dead letter
	StandingInFlight  Standing = "in_flight" // sent less than the grace ago
	// StandingMissing: sent longer ago, and the consumer does not know of it; or, of a
	// replay, has only the dead letter that was replayed. The broker has lost it, or takes
	// longer than the grace.
	StandingMissing Standing = "missing"
	// StandingUntracked: sent, but to no consumer that the routing table has. Nobody keeps
	// track of it.
	StandingUntracked Standing = "untracked"
	// StandingUnknown: of an ID that was asked about, there is nothing at all. It was never
	// accepted, or is older than what is kept. It has no consumer.
	StandingUnknown Standing = "unknown"
)

// AuditRow is an outbox row, without its payload.
type AuditRow struct {
	Seq        int64
	ID         string // an event that was appended again has several rows with one ID
	EventID    string
	EventType  string
	Consumer   string    // the only consumer that it is for; empty: all that are routed
	Generation int       // of a replay
	Force      bool      // the replay is forced
	Status     string    // pending, sent or failed
	At         time.Time // of its settlement, or, while it is pending, of its creation
	Aside      bool      // Adopt settled it unsent: all dead letters of its event were closed
}

// The statuses of a row.
const (
	rowPending = "pending"
	rowSent    = "sent"
	rowFailed  = "failed"
)

// AuditReach says what an outbox has.
type AuditReach struct {
	LastSeq int64 // of any row; 0: there is none
	// FirstSeq is that of the first row which is pending, or was settled at or after the
	// time that was asked for; anything lower, if no time was.
	FirstSeq   int64
	OldestSent time.Time // when the oldest row of status sent was sent; zero: there is none
}

// AuditOutbox reads the rows of an outbox, in short statements that lock nothing.
type AuditOutbox interface {
	// AuditPage returns at most limit rows whose Seq is above after, in its order.
	AuditPage(ctx context.Context, after int64, limit int) ([]AuditRow, error)
	// AuditEvents returns all rows of some events, seen at one moment, in the order of
	// Seq. eventIDs are at most [AuditBatch].
	AuditEvents(ctx context.Context, eventIDs []string) ([]AuditRow, error)
	// AuditReach returns what there is. from is a time for FirstSeq, or zero.
	AuditReach(ctx context.Context, from time.Time) (AuditReach, error)
}

// AuditDelivery is what a store knows of an event at a consumer.
type AuditDelivery struct {
	Processed       bool  // an inbox row exists
	InboxGeneration int   // of that row
	State           State // of the delivery row
	// Of the dead letter, if there is one.
	Status     ReviewStatus
	Resolution Resolution
	Generation int
}

// AuditStore reads what consumers know.
type AuditStore interface {
	// AuditDeliveries returns what the consumers know of some events: inbox, deliveries and
	// dead letters, seen at one moment, since an event goes from one to the other in one
	// transaction. eventIDs are at most [AuditBatch].
	AuditDeliveries(ctx context.Context, eventIDs []string) (map[Target]AuditDelivery, error)
}

// AuditBatch is how many rows, or events, an audit reads at a time.
const AuditBatch = 1000

// AuditConfig says what to audit. Outbox, Stores and Routes are needed.
type AuditConfig struct {
	Outbox AuditOutbox
	// Stores are those of the consumers: often one, that of the outbox. Where it is another
	// database, keep its inbox rows ([Policy].InboxRetention) for longer than sent outbox
	// rows ([PrunerConfig]): else processed events look like lost ones.
	Stores []AuditStore
	// Routes is the routing table as it is now: an event that was sent before a consumer was
	// routed is missing there. Leave out consumers without a store: what is for them is
	// untracked.
	Routes Routes
	// EventIDs, unless nil, are the only events to audit. One that comes again counts once,
	// unless a million others came between: memory is bounded, by 64 MB.
	EventIDs iter.Seq[string]
	// From (inclusive) and To (exclusive) narrow the audit to rows that were settled then,
	// or, if pending, created. Default: all that are kept.
	From, To time.Time
	// Grace is how long an event may be on its way. Default: 1 min.
	Grace time.Duration
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Progress, unless nil, is called after each batch, with the report so far.
	Progress func(AuditReport)
}

// AuditFinding is an event that is missing at a consumer, or unknown.
type AuditFinding struct {
	EventID   string    `json:"event_id"`
	EventType string    `json:"event_type,omitempty"`
	Consumer  string    `json:"consumer_name,omitempty"`
	Standing  Standing  `json:"standing"`
	SentAt    time.Time `json:"sent_at,omitzero"`
}

// AuditReport counts the standings: one for each outbox row at each of its consumers, and
// one for each ID that was asked about and has no row.
type AuditReport struct {
	Rows int `json:"event_outbox"` // looked at
	// Consumers are the counts by consumer; its name is empty where there is none.
	Consumers map[string]map[Standing]int `json:"consumers"`
	Missing   int                         `json:"missing"`
	Unknown   int                         `json:"unknown"`
	// OldestSent is when the oldest sent row that is kept was sent: nothing can be said, or
	// requeued, of what was removed before. A dead letter keeps rows of its event for longer
	// than others. Zero: no sent row is kept.
	OldestSent time.Time `json:"oldest_sent_at,omitzero"`
}

// Clean reports whether nothing was found.
func (r AuditReport) Clean() bool { return r.Missing == 0 && r.Unknown == 0 }

// Audit accounts for each event that was in the outbox when it began, in the order of
// appending, or for those of cfg.EventIDs, and calls found for each that is missing or
// unknown; an error of found ends the audit and is returned as it is. What is missing can
// be sent again with [Requeue].
//
// It may run beside everything else, at any time: an event that moves meanwhile is not
// taken for missing. It reads in batches of [AuditBatch] rows, each in a few short
// statements, and holds no transaction. Rows that are deleted once they are sent
// (DispatcherConfig.DeleteSent), or have been removed since, cannot be audited.
func Audit(ctx context.Context, cfg AuditConfig, found func(AuditFinding) error) (AuditReport, error) {
	a := auditor{AuditConfig: cfg, found: found, report: AuditReport{Consumers: map[string]map[Standing]int{}}}
	if cfg.Outbox == nil || len(cfg.Stores) == 0 || cfg.Routes == nil {
		return a.report, errors.New("audit: Outbox, Stores and Routes are needed")
	}
	if cfg.Grace < 0 {
		return a.report, errors.New("audit: Grace must not be negative")
	}
	if a.Grace == 0 {
		a.Grace = time.Minute
	}
	if a.Now == nil {
		a.Now = time.Now
	}
	reach, err := a.Outbox.AuditReach(ctx, a.From)
	if err != nil {
		return a.report, fmt.Errorf("audit: %w", err)
	}
	a.report.OldestSent = reach.OldestSent
	if a.EventIDs != nil {
		err = a.list(ctx)
	} else {
		err = a.outbox(ctx, reach)
	}
	return a.report, err
}

// outbox audits the rows of a reach. What is appended later is pending anyway.
func (a *auditor) outbox(ctx context.Context, r AuditReach) error {
	return eachPage(ctx, a.Outbox, r, func(rows []AuditRow) error { return a.batch(ctx, rows, nil) })
}

// eachPage calls fn with the rows of a reach, batch by batch.
func eachPage(ctx context.Context, outbox AuditOutbox, r AuditReach, fn func(rows []AuditRow) error) error {
	last := r.LastSeq
	for after := r.FirstSeq - 1; after < last; {
		rows, err := outbox.AuditPage(ctx, after, AuditBatch)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		after = rows[len(rows)-1].Seq
		for len(rows) > 0 && rows[len(rows)-1].Seq > last {
			rows = rows[:len(rows)-1]
		}
		if err := fn(rows); err != nil {
			return err
		}
	}
	return nil
}

// maxRemembered is how many IDs of a list are remembered: with the map's own, some 60 bytes
// each.
const maxRemembered = 1_000_000

// list audits the IDs that were asked about.
func (a *auditor) list(ctx context.Context) error {
	seen := map[[16]byte]struct{}{}
	var ids []string
	flush := func() error {
		if len(ids) == 0 {
			return nil
		}
		rows, err := a.Outbox.AuditEvents(ctx, ids)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		err = a.batch(ctx, rows, ids)
		ids = ids[:0]
		return err
	}
	for id := range a.EventIDs {
		sum := sha256.Sum256([]byte(id))
		key := [16]byte(sum[:])
		if _, known := seen[key]; known {
			continue
		}
		if len(seen) == maxRemembered {
			clear(seen)
		}
		seen[key] = struct{}{}
		if ids = append(ids, id); len(ids) == AuditBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
