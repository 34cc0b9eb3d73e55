package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
)

// Adopt implements [eventing.DispatchStore].
func (s *Store) Adopt(ctx context.Context, r eventing.AdoptRequest) (int, error) {
	var rows queue
	if err := s.read(ctx, func(*Tx) { rows = slices.Clone(s.unadopted[:min(len(s.unadopted), max(r.Limit, 0))]) }); err != nil {
		return 0, err
	}
	adopted := 0
	for _, e := range rows {
		taken := false
		if err := s.write(ctx, func(tx *Tx) error {
			row := tx.outbox.get(e.id)
			if taken = row != nil && row.Seq == e.n && row.unadopted && row.status == pending; !taken {
				return nil // another dispatcher was faster
			}
			if err := tx.adopt(*row, r); err != nil {
				return err
			}
			return eventing.Fault(ctx, eventing.FaultAdopted)
		}); err != nil {
			return adopted, err
		}
		if taken {
			adopted++
		}
	}
	return adopted, nil
}

func (tx *Tx) adopt(row outboxRow, r eventing.AdoptRequest) error {
	event := tx.dead.get(row.EventID)
	complete, err := eventing.CompleteRow(row.OutboxRow)
	if event != nil && eventing.IsUndecodable(row.EventID) {
		complete, err = row.OutboxRow, nil // nobody expects an envelope
	}
	switch {
	case err != nil:
		tx.setAside(row, failed, r)
		tx.refuse(row, err, r)
	case event == nil:
		row.OutboxRow, row.unadopted, row.again = complete, false, true
		tx.outbox.put(row.ID, row)
	case !event.open():
		tx.setAside(row, sent, r)
	default:
		tx.outbox.remove(row.ID)
		return tx.replayOpen(event, complete.Payload, eventing.Act{Act: "replayed", By: "sql", At: r.Now, Note: "row " + row.ID})
	}
	return nil
}

// setAside settles a row of which nothing comes, under an ID of its own.
func (tx *Tx) setAside(row outboxRow, as status, r eventing.AdoptRequest) {
	tx.outbox.remove(row.ID)
	row.ID, row.status, row.settledAt = eventing.NewID(), as, r.Now
	tx.outbox.put(row.ID, row)
}

// replayOpen replays the event's open dead letters, with the payload of the row:
// perhaps it was mended. What is retrying or parked is on its way already.
func (tx *Tx) replayOpen(event *deadEvent, payload []byte, act eventing.Act) error {
	for _, dl := range event.sorted() {
		d := tx.deliveries.get(dl.target())
		if !dl.open() || d != nil && d.state != eventing.StateDead {
			continue
		}
		dl.Payload = payload
		if err := tx.replay(dl, act); err != nil {
			return err
		}
	}
	return nil
}

// refuse makes a dead letter of a hand-written row that is no envelope.
func (tx *Tx) refuse(row outboxRow, cause error, r eventing.AdoptRequest) {
	id, payload := eventing.Undecodable(row.Payload)
	message := bounded("row " + row.ID + ": " + cause.Error())
	tx.quarantine(eventing.Failure{
		Run: eventing.Run{Delivery: eventing.Delivery{EventID: id, EventType: row.EventType, Payload: payload}},
		Now: r.Now, Attempts: 1, Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, Message: message,
		History: []eventing.Attempt{{
			Attempt: 1, At: r.Now.UTC(), Outcome: "failed", ErrorCode: eventing.ReasonEnvelopeMalformed, ErrorMessage: message,
		}},
		DeadLetterUntil: r.DeadLetterUntil,
	})
}

// maxMessageBytes bounds what a dead letter says, as everywhere: the row's own
// texts may be of any length.
const maxMessageBytes = 1024

func bounded(s string) string {
	if len(s) <= maxMessageBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessageBytes-len("…")], "") + "…"
}
