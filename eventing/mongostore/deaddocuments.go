package mongostore

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// deadDoc is a document of dead_letter_events: an event that died, with the consumers at
// which it did. What is below consumers is derived from them, for those who read it.
type deadDoc struct {
	ID          string      `bson:"_id"`
	EventID     string      `bson:"eventId"` // as [Config.DeadLetter] has it
	Rev         int64       `bson:"rev"`
	EventType   string      `bson:"eventType"`
	Error       string      `bson:"error"` // the last one
	FirstSeenAt time.Time   `bson:"firstSeenAt"`
	LastSeenAt  time.Time   `bson:"lastSeenAt"`
	Attempts    int         `bson:"attempts"` // of handlers, over all consumers
	Payload     payload     `bson:"payload"`
	Consumers   []deadEntry `bson:"consumers"`

	IdempotencyKey        string         `bson:"idempotencyKey,omitempty"`
	TerminalReasonCode    string         `bson:"terminalReasonCode"`
	TerminalReasonMessage string         `bson:"terminalReasonMessage"`
	AttemptCount          int            `bson:"attemptCount"`
	AttemptHistory        []attemptDoc   `bson:"attemptHistory"`
	PayloadSnapshot       map[string]any `bson:"payloadSnapshot,omitempty"`
	ReviewStatus          string         `bson:"reviewStatus"`
	CreatedAt             time.Time      `bson:"createdAt"`
	ExpiresAt             time.Time      `bson:"expiresAt,omitempty"` // while something is open it is only given up then
}

// deadEntry is a dead letter: the event at one consumer.
type deadEntry struct {
	Consumer       string       `bson:"consumer"`
	Rev            int64        `bson:"rev"` // of the target's document that it follows from
	Stage          string       `bson:"stage"`
	ReasonCode     string       `bson:"reasonCode"`
	Message        string       `bson:"message"`
	AttemptCount   int          `bson:"attemptCount"`
	AttemptHistory []attemptDoc `bson:"attemptHistory"`
	Status         string       `bson:"status"`
	Resolution     string       `bson:"resolution,omitempty"`
	Generation     int          `bson:"generation"`
	OrderingKey    string       `bson:"orderingKey,omitempty"`
	HoldsKey       bool         `bson:"holdsKey,omitempty"` // later outbox rows of the key wait until it is closed
	Acts           []actDoc     `bson:"acts"`
	ScheduledAt    time.Time    `bson:"scheduledAt,omitempty"`
	CreatedAt      time.Time    `bson:"createdAt"`
	UpdatedAt      time.Time    `bson:"updatedAt"`
	ExpiresAt      time.Time    `bson:"expiresAt,omitempty"`
}

type actDoc struct {
	Act   string    `bson:"act"`
	By    string    `bson:"by"`
	At    time.Time `bson:"at"`
	Note  string    `bson:"note,omitempty"`
	Plan  string    `bson:"plan,omitempty"`
	DueAt time.Time `bson:"dueAt,omitempty"`
}

func (e *deadEntry) open() bool { return e.Status != string(eventing.StatusClosed) }

// due reports whether it is time for a scheduled replay.
func (e *deadEntry) due(now time.Time) bool {
	return e.Status == string(eventing.StatusReviewed) && !e.ScheduledAt.IsZero() && !e.ScheduledAt.After(now)
}

// record adds an act, after which the dead letter is kept for a while.
func (e *deadEntry) record(act eventing.Act) {
	e.Acts = append(slices.Clip(e.Acts), actDoc{act.Act, act.By, act.At, act.Note, act.Plan, act.DueAt})
	e.UpdatedAt = act.At
	for _, at := range []time.Time{act.At, e.ScheduledAt} {
		if keep := at.Add(eventing.ActRetention); keep.After(e.ExpiresAt) {
			e.ExpiresAt = keep
		}
	}
}

func (d *deadDoc) entry(consumer string) *deadEntry {
	for i := range d.Consumers {
		if d.Consumers[i].Consumer == consumer {
			return &d.Consumers[i]
		}
	}
	return nil
}

func (d *deadDoc) open() bool {
	return slices.ContainsFunc(d.Consumers, func(e deadEntry) bool { return e.open() })
}

// letter is the dead letter as the engine knows it.
func (d *deadDoc) letter(e *deadEntry) eventing.DeadLetter {
	dl := eventing.DeadLetter{
		EventID: d.ID, Consumer: e.Consumer, EventType: d.EventType, Stage: eventing.Stage(e.Stage), Reason: eventing.ReasonCode(e.ReasonCode),
		Message: e.Message, AttemptCount: e.AttemptCount, History: fromAttempts(e.AttemptHistory), Status: eventing.ReviewStatus(e.Status),
		Resolution: eventing.Resolution(e.Resolution), OrderingKey: e.OrderingKey, Generation: e.Generation, CreatedAt: e.CreatedAt,
		UpdatedAt: e.UpdatedAt, ExpiresAt: e.ExpiresAt, ScheduledAt: e.ScheduledAt, Payload: d.Payload,
	}
	for _, a := range e.Acts {
		dl.Acts = append(dl.Acts, eventing.Act{Act: a.Act, By: a.By, At: a.At, Note: a.Note, Plan: a.Plan, DueAt: a.DueAt})
	}
	return dl
}

// progress is the order of the states, the least advanced first.
var progress = []string{
	string(eventing.StatusPending), string(eventing.StatusReviewed), string(eventing.StatusReplayed), string(eventing.StatusClosed),
}

// derive fills in what follows from the event and from the consumers: of all the least advanced status, and the
// reason and the attempts of the one that changed last, an open one first.
func (d *deadDoc) derive(describe func(eventing.Envelope) DeadLetterFields) {
	last := &d.Consumers[0]
	d.ReviewStatus, d.ExpiresAt, d.CreatedAt = last.Status, time.Time{}, d.FirstSeenAt
	for i := range d.Consumers {
		e := &d.Consumers[i]
		if e.open() && !last.open() || e.open() == last.open() && e.UpdatedAt.After(last.UpdatedAt) {
			last = e
		}
		if slices.Index(progress, e.Status) < slices.Index(progress, d.ReviewStatus) {
			d.ReviewStatus = e.Status
		}
		if e.ExpiresAt.After(d.ExpiresAt) {
			d.ExpiresAt = e.ExpiresAt
		}
	}
	d.TerminalReasonCode, d.TerminalReasonMessage = last.ReasonCode, last.Message
	d.AttemptCount, d.AttemptHistory = last.AttemptCount, last.AttemptHistory
	if envelope, err := eventing.DecodeEnvelope(d.Payload); err == nil {
		fields := describe(envelope)
		d.EventID, d.IdempotencyKey, d.PayloadSnapshot = fields.EventID, fields.IdempotencyKey, snapshot(fields.Payload)
	}
}

// snapshot is the event's payload as a document, if it can be one; nil otherwise.
func snapshot(payload []byte) map[string]any {
	var doc map[string]any
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if d.Decode(&doc) != nil || !storable(doc, 0) {
		return nil
	}
	for name, v := range doc {
		doc[name] = numbered(v)
	}
	return doc
}

// numbered has integers stay such: of 17 digits a float keeps not all. What is no number of the database's is text.
func numbered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = numbered(field)
		}
	case []any:
		for i, item := range v {
			v[i] = numbered(item)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil {
			return f
		}
		return v.String()
	}
	return v
}

// storable reports whether every database takes a value as a document: dead letters must
// not fail for the names of fields.
func storable(v any, depth int) bool {
	const maxDepth = 80
	if depth > maxDepth {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if name == "" || strings.ContainsAny(name, "$.\x00") || !storable(field, depth+1) {
				return false
			}
		}
	case []any:
		return !slices.ContainsFunc(v, func(item any) bool { return !storable(item, depth+1) })
	}
	return true
}
