package memstore

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// AppendRows implements [eventing.OutboxStore]. The commit wakes the dispatchers
// of this process.
func (s *Store) AppendRows(_ context.Context, tx *Tx, rows []eventing.OutboxRow) error {
	if err := tx.usable(s); err != nil {
		return err
	}
	for _, r := range rows {
		if err := tx.insert(outboxRow{OutboxRow: r, status: pending}); err != nil {
			return err
		}
	}
	tx.wakes = true
	return nil
}

// LockKeys implements [eventing.OutboxStore]: there is a single writer anyway.
func (s *Store) LockKeys(_ context.Context, tx *Tx, _ []string) error { return tx.usable(s) }

// insert gives a row its place in the sequence. As there is one writer, that is
// also its place in the order of commits.
func (tx *Tx) insert(r outboxRow) error {
	if tx.outbox.get(r.ID) != nil {
		return fmt.Errorf("memstore: insert into the outbox: a row with the ID %q exists already", r.ID)
	}
	tx.store.lastSeq++
	r.Seq = tx.store.lastSeq
	tx.outbox.put(r.ID, r)
	return nil
}

// InsertByHand writes an outbox row as people do with plain SQL: only the columns
// named here, and nobody is woken. A dispatcher adopts it. It fails if a row
// with that ID exists. The payload is an envelope as JSON; what it leaves out
// comes from the columns.
func (s *Store) InsertByHand(ctx context.Context, id, eventID, eventType, payload string) error {
	return s.write(ctx, func(tx *Tx) error {
		return tx.insert(outboxRow{
			OutboxRow: eventing.OutboxRow{
				ID: id, EventID: eventID, EventType: eventType, Payload: []byte(payload), CreatedAt: time.Now().UTC(),
			},
			status: pending, unadopted: true,
		})
	})
}
