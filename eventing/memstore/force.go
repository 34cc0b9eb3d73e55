package memstore

import (
	"context"

	"github.com/waybill-go/waybill/eventing"
)

// Force implements [eventing.DeadLetterStore].
func (s *Store) Force(ctx context.Context, t eventing.Target, generation int, act eventing.Act) error {
	return s.write(ctx, func(tx *Tx) error {
		dl, died := tx.deadLetter(t)
		f := eventing.ToForce{Target: t, Died: died, Status: dl.Status, Resolution: dl.Resolution, Generation: dl.Generation}
		last := tx.findToForce(&f)
		dl.EventID, dl.Consumer = t.EventID, t.Consumer
		var err error
		if dl.Generation, err = f.NextGeneration(generation); err != nil {
			return err
		}
		switch event := tx.dead.get(t.EventID); {
		case died:
		case event != nil:
			dl.EventType, dl.Payload = event.EventType, event.Payload
		case last != nil:
			dl.EventType, dl.Payload = last.EventType, last.Payload
		default:
			return f.ErrNoPayload()
		}
		row := eventing.ReplayRow(dl.DeadLetter, dl.Generation, act.At)
		row.Force = true
		if err := tx.insert(outboxRow{OutboxRow: row, status: pending}); err != nil {
			return err
		}
		if died {
			dl.Resolution = eventing.Resolved
			dl.record(act)
			tx.putDeadLetter(dl)
		}
		return eventing.Fault(ctx, eventing.FaultForcing)
	})
}

// findToForce fills in what there is beside the dead letter, and returns the last outbox row
// of the event, if one is kept.
func (tx *Tx) findToForce(f *eventing.ToForce) (last *outboxRow) {
	if processed := tx.inbox.get(f.Target); processed != nil {
		f.Processed, f.InboxGeneration = true, processed.generation
	}
	if d := tx.deliveries.get(f.Target); d != nil {
		f.Delivery = d.state
	}
	for id := range tx.store.outbox.rows {
		row := tx.outbox.get(id)
		if row == nil || row.EventID != f.EventID || row.unadopted {
			continue
		}
		if row.Consumer == f.Consumer {
			f.Sent = max(f.Sent, row.Generation)
		}
		if last == nil || row.Seq > last.Seq {
			last = row
		}
	}
	return last
}
