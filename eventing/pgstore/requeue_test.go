package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Of an event that was appended again only the last row is sent again, though it is read long
// after the first one.
func TestRequeueOfAnEventAppendedTwice(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), openSQL(t)
	outbox := eventing.NewOutbox(d.Store, eventing.OutboxConfig{})
	send := func(ids ...string) {
		t.Helper()
		var all []eventing.Appendable
		for _, id := range ids {
			all = append(all, eventing.Envelope{Header: eventing.Header{ID: id, Type: "T", OccurredAt: time.Now()}, Payload: []byte(`{}`)})
		}
		if err := outbox.InTx(ctx, func(tx *sql.Tx) error { return outbox.Append(ctx, tx, all...) }); err != nil {
			t.Fatal(err)
		}
		if _, err := d.DB.ExecContext(ctx, `UPDATE event_outbox SET status = 'sent', sent_at = created_at WHERE status = 'pending'`); err != nil {
			t.Fatal(err)
		}
	}
	var others []string
	for i := range eventing.AuditBatch + 500 {
		others = append(others, fmt.Sprint("e", i))
	}
	send("twin")
	send(others...)
	send("twin")
	done, err := eventing.Requeue(ctx, d.Store, eventing.RequeueFilter{SentFrom: time.Now().Add(-time.Hour)}, false)
	if err != nil || done.Rows != len(others)+1 {
		t.Errorf("%d rows are sent again, want %d: %v", done.Rows, len(others)+1, err)
	}
	rows, err := d.AuditEvents(ctx, []string{"twin"})
	if err != nil || len(rows) != 2 || rows[0].Status != "sent" || rows[1].Status != "pending" {
		t.Errorf("the event's rows are %+v: %v", rows, err)
	}
}

func TestRequeueLeavesWhatIsSetAside(t *testing.T) {
	t.Parallel()
	ctx, d := context.Background(), openSQL(t)
	outbox := eventing.NewOutbox(d.Store, eventing.OutboxConfig{})
	for _, id := range []string{"aside", "sent"} {
		e := eventing.Envelope{Header: eventing.Header{ID: id, Type: "T", OccurredAt: time.Now()}, Payload: []byte(`{}`)}
		if err := outbox.InTx(ctx, func(tx *sql.Tx) error { return outbox.Append(ctx, tx, e) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.DB.ExecContext(ctx, `UPDATE event_outbox SET status = 'sent', sent_at = created_at, last_error = CASE WHEN event_id = 'aside' THEN 'nothing to run' END`); err != nil {
		t.Fatal(err)
	}
	rows, err := d.AuditEvents(ctx, []string{"aside", "sent"})
	if err != nil || len(rows) != 2 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if n, err := d.Requeue(ctx, []int64{rows[0].Seq, rows[1].Seq}); err != nil || n != 1 {
		t.Errorf("%d are sent again, %v; want the one that was sent", n, err)
	}
}
