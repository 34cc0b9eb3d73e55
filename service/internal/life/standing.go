package life

import (
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// Grace is how long an event may be on its way from the outbox to the worker before it counts as missing.
const Grace = time.Minute

// standing collects what says how an event stands.
type standing struct {
	event   *Event
	now     time.Time
	pending bool // an outbox row
	sent    Step // the last row that was
	state   eventing.State
	letters []eventing.DeadLetter
	inbox   bool
}

// goesOn notes when the event goes on by itself.
func (s *standing) goesOn(at time.Time) {
	if e := s.event; at.After(s.now) && (e.DueAt.IsZero() || at.Before(e.DueAt)) {
		e.DueAt = at
	}
}

// is returns the standing, in the words of an audit.
func (s *standing) is() eventing.Standing {
	switch {
	case s.inbox, s.event.Status == courier.StatusProcessed:
		return eventing.StandingProcessed
	case s.state == eventing.StateRetrying:
		return eventing.StandingRetrying
	case s.state == eventing.StateParked:
		return eventing.StandingParked
	case s.pending:
		return eventing.StandingPending
	case s.state == eventing.StateDead && len(s.letters) == 0: // its dead letter is being written
		return eventing.StandingDead
	case slices.ContainsFunc(s.letters, func(d eventing.DeadLetter) bool { return d.Status != eventing.StatusClosed && !s.awaited(d) }):
		return eventing.StandingDead
	case slices.ContainsFunc(s.letters, func(d eventing.DeadLetter) bool { return d.Resolution == eventing.Discarded }):
		return eventing.StandingDiscarded
	case s.event.Status == courier.StatusDeadLettered && len(s.letters) == 0: // it has expired
		return eventing.StandingDiscarded
	case s.sent.Consumer != "" && s.sent.Consumer != worker.Consumer:
		return eventing.StandingUntracked
	case s.now.Sub(s.sent.At) < Grace:
		return eventing.StandingInFlight
	}
	return eventing.StandingMissing
}

// awaited reports whether a dead letter waits for the row that was sent last.
func (s *standing) awaited(d eventing.DeadLetter) bool {
	return d.Status == eventing.StatusReplayed && s.sent.Replay == d.Generation
}
