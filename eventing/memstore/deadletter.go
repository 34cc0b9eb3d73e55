package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// DeadLetterEvent is a row of dead_letter_events: an event that died, wherever
// that was.
type DeadLetterEvent struct {
	EventID     string
	EventType   string
	Payload     []byte // as [Store.InsertByHand] takes it back
	Error       string // the last one
	FirstSeenAt time.Time
	LastSeenAt  time.Time
	Attempts    int // of handlers, over all consumers
}

// DeadLetterEvent returns the row of an event, as people read it with plain SQL.
func (s *Store) DeadLetterEvent(eventID string) (event DeadLetterEvent, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.dead.rows[eventID]; e != nil {
		event = e.DeadLetterEvent
		event.Payload = slices.Clone(event.Payload)
		return event, true
	}
	return event, false
}

// deadEvent is an event that died, with the consumers at which it did.
type deadEvent struct {
	DeadLetterEvent
	at map[string]deadLetter
}

type deadLetter struct {
	eventing.DeadLetter
	holdsKey bool // later outbox rows of the key wait until it is closed
}

func (dl *deadLetter) open() bool { return dl.Status != eventing.StatusClosed }

func (dl *deadLetter) target() eventing.Target {
	return eventing.Target{EventID: dl.EventID, Consumer: dl.Consumer}
}

func (e *deadEvent) open() bool {
	for _, dl := range e.at {
		if dl.open() {
			return true
		}
	}
	return false
}

func (e *deadEvent) sorted() []deadLetter { return slices.SortedFunc(maps.Values(e.at), oldestFirst) }

func oldestFirst(a, b deadLetter) int { return a.Place().Compare(b.Place()) }

func (tx *Tx) deadLetter(t eventing.Target) (deadLetter, bool) {
	if e := tx.dead.get(t.EventID); e != nil {
		dl, ok := e.at[t.Consumer]
		return dl, ok
	}
	return deadLetter{}, false
}

// putDeadLetter replaces a dead letter of an event that has died before.
func (tx *Tx) putDeadLetter(dl deadLetter) {
	e := *tx.dead.get(dl.EventID)
	e.at = maps.Clone(e.at)
	e.at[dl.Consumer] = dl
	tx.dead.put(dl.EventID, e)
}

// die opens a dead letter, or opens it again: it is pending, and what people did
// to it is remembered. attempts are the handler's since its last death.
func (tx *Tx) die(dl deadLetter, attempts int, now time.Time) {
	dl.Status, dl.CreatedAt, dl.UpdatedAt = eventing.StatusPending, now, now
	if known, ok := tx.deadLetter(dl.target()); ok {
		dl.CreatedAt, dl.Acts, dl.Generation = known.CreatedAt, known.Acts, max(dl.Generation, known.Generation)
	}
	e := deadEvent{DeadLetterEvent: DeadLetterEvent{EventID: dl.EventID, FirstSeenAt: now}}
	if known := tx.dead.get(dl.EventID); known != nil {
		e = *known
	}
	e.EventType, e.Payload, e.Error, e.LastSeenAt = dl.EventType, dl.Payload, dl.Message, now
	e.Attempts += attempts
	if e.at == nil {
		e.at = map[string]deadLetter{}
	}
	tx.dead.put(dl.EventID, e)
	tx.putDeadLetter(dl)
}

// DeadLetters implements [eventing.DeadLetterStore].
func (s *Store) DeadLetters(ctx context.Context, f eventing.DeadLetterFilter) (list []eventing.DeadLetter, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	err = s.read(ctx, func(tx *Tx) {
		var found []deadLetter
		for _, e := range s.dead.rows {
			for _, dl := range e.at {
				if selects(f, dl) {
					found = append(found, dl)
				}
			}
		}
		slices.SortFunc(found, oldestFirst)
		for _, dl := range found[:min(len(found), f.Limit, 10_000)] {
			dl.History, dl.Acts, dl.Payload = slices.Clone(dl.History), slices.Clone(dl.Acts), slices.Clone(dl.Payload)
			if dl.open() {
				dl.ParkedBehind = tx.parkedBehind(dl)
			}
			list = append(list, dl.DeadLetter)
		}
	})
	return list, err
}

func selects(f eventing.DeadLetterFilter, dl deadLetter) bool {
	return either(f.EventID, dl.EventID) && either(f.Consumer, dl.Consumer) && either(f.EventType, dl.EventType) &&
		either(f.OrderingKey, dl.OrderingKey) && either(f.Stage, dl.Stage) && either(f.Reason, dl.Reason) &&
		either(f.Status, dl.Status) && (!f.OpenOnly || dl.open()) &&
		!dl.CreatedAt.Before(f.Since) && (f.Until.IsZero() || dl.CreatedAt.Before(f.Until)) &&
		(f.After == eventing.Place{} || f.After.Compare(dl.Place()) < 0)
}

// either reports whether a value is as wanted; none is, too.
func either[T ~string](wanted, value T) bool { return wanted == "" || wanted == value }

// parkedBehind counts the deliveries that wait for a dead letter's.
func (tx *Tx) parkedBehind(dl deadLetter) int {
	n := 0
	for _, e := range tx.store.lanes[lane{dl.Consumer, dl.OrderingKey}] {
		d := tx.deliveries.get(eventing.Target{EventID: e.id, Consumer: dl.Consumer})
		if d != nil && d.state == eventing.StateParked && d.EventID != dl.EventID {
			n++
		}
	}
	return n
}
