package eventing

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// failure is a row that cannot be published.
type failure struct {
	row     *OutboxRow
	reason  ReasonCode
	err     error
	holdKey bool // later rows of the key wait for it
}

func newFailure(row *OutboxRow, ordered bool, reason ReasonCode, err error) failure {
	replay := row.Consumer != "" // its consumer holds the key itself
	return failure{row: row, reason: reason, err: err, holdKey: ordered && !replay && row.OrderingKey != ""}
}

func (w *worker) failAll(ctx context.Context, failures []failure) (n int, err error) {
	for _, f := range failures {
		if err := w.d.fail(ctx, f); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// afterOthers leaves out those before which something of their key is not out, or in
// flight: they would hold it up.
func (b *batch) afterOthers(unfit []failure) []failure {
	if len(unfit) == 0 {
		return nil
	}
	waiting := b.w.d.inFlight.keys()
	for _, s := range b.sendings {
		if s.open > 0 || b.w.d.inFlight != nil {
			waiting[s.row.OrderingKey] = true
		}
	}
	return slices.DeleteFunc(unfit, func(f failure) bool { return f.holdKey && waiting[f.row.OrderingKey] })
}

// fail takes a row that cannot be published out of the outbox.
func (d *Dispatcher) fail(ctx context.Context, f failure) error {
	d.cfg.Logger.Error("dispatcher: the event cannot be published and becomes a dead letter",
		"event_id", f.row.EventID, "event_type", f.row.EventType, "reason", f.reason, "error", f.err)
	now := d.cfg.Now()
	if err := d.store.FailDispatch(ctx, DispatchFailure{
		Row: *f.row, Holder: d.cfg.Holder, Reason: f.reason, Message: truncate(f.err.Error()),
		HoldKey: f.holdKey, RoutingVersion: f.row.version, Now: now, DeadLetterUntil: now.Add(d.cfg.DeadLetterRetention),
	}); err != nil {
		return fmt.Errorf("dead-letter %s: %w", f.row.EventID, err)
	}
	return nil
}

var errNoRoute = errors.New("no consumer is routed for this type of event; register a handler or declare it in the routing file, or say that nobody needs it")
