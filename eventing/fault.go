package eventing

import "context"

// FaultPoint names a place where a process could die. Tests put a fault there
// to see that nothing is lost; see package eventingtest.
type FaultPoint string

// The fault points, in the order of an event's life. "Before commit" means that
// all is written and the transaction still open.
const (
	FaultAppended        FaultPoint = "append: before commit"
	FaultAdopted         FaultPoint = "adopt: before commit"
	FaultClaimed         FaultPoint = "dispatch: claimed, not published"
	FaultPublished       FaultPoint = "dispatch: published, not settled"
	FaultExpediting      FaultPoint = "expedite: before commit"
	FaultSettling        FaultPoint = "settle: before commit"
	FaultDispatchFailing FaultPoint = "dispatch failed: before commit"
	FaultArrived         FaultPoint = "arrive: decided, not run"
	FaultParking         FaultPoint = "park: before commit"
	FaultPrepared        FaultPoint = "prepare: prepared, not handled"
	FaultHandled         FaultPoint = "conclude: handled, before the inbox row"
	FaultConcluding      FaultPoint = "conclude: before commit"
	FaultConcluded       FaultPoint = "conclude: committed, not acked"
	FaultFailing         FaultPoint = "fail: before commit"
	FaultFailed          FaultPoint = "fail: committed, not acked"
	FaultClaimedDue      FaultPoint = "redeliver: claimed, not run"
	FaultReplaying       FaultPoint = "replay: before commit"
	FaultScheduling      FaultPoint = "schedule: before commit"
	FaultForcing         FaultPoint = "force: before commit"
	FaultDiscarding      FaultPoint = "discard: before commit"
	// FaultCompleting is for stores without transactions: the write that decides is done, and one
	// that follows from it is not. It is passed before each of them, by whoever does it.
	FaultCompleting FaultPoint = "complete: decided, not carried out"
)

// WithFaults returns a context in which f is asked at every fault point. An
// error stops the work right there, as a crash would: what is open is rolled
// back, nothing is cleaned up, nothing is acked. For tests only.
func WithFaults(ctx context.Context, f func(FaultPoint) error) context.Context {
	return context.WithValue(ctx, faultKey, f)
}

// Fault asks the context's fault function, if there is one. Stores call it at
// the points that lie inside their transactions.
func Fault(ctx context.Context, p FaultPoint) error {
	if f, ok := ctx.Value(faultKey).(func(FaultPoint) error); ok {
		if err := f(p); err != nil {
			return &crashError{p, err}
		}
	}
	return nil
}

// crashError is what an injected fault looks like to the engine: everything
// stops.
type crashError struct {
	point FaultPoint
	err   error
}

func (e *crashError) Error() string { return string(e.point) + ": " + e.err.Error() }
func (e *crashError) Unwrap() error { return e.err }
