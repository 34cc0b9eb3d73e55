package sqltest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// BrokenTx checks that a handler which returns nil but leaves a transaction that
// cannot commit has failed: it is retried by its policy and becomes a dead letter, and
// neither runs for ever nor counts as done.
func BrokenTx[Tx any](t *testing.T, db Database[Tx], spoil func(ctx context.Context, tx Tx) error) {
	t.Helper()
	c, err := eventing.NewConsumer(db, func(ctx context.Context, e eventing.Envelope) error {
		tx, ok := eventing.TxFromContext[Tx](ctx)
		if !ok {
			t.Error("the handler has no transaction")
		}
		if e.ID == "good" {
			return db.Effect(ctx, tx, "billing", e.ID)
		}
		return spoil(ctx, tx)
	}, eventing.ConsumerConfig{
		Name: "billing", Transactional: true, Logger: slog.New(slog.DiscardHandler),
		Policy: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"bad", "good"} {
		e := eventing.Envelope{Payload: []byte(`{}`)}
		e.ID, e.Type, e.OccurredAt, e.SchemaVersion = id, "order.placed", time.Now(), 1
		m, err := eventing.EnvelopeCodec{}.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Receive(t.Context(), m); err != nil {
			t.Fatalf("%s was not concluded: %v", id, err)
		}
	}
	letters, err := db.DeadLetters(t.Context(), eventing.DeadLetterFilter{Limit: 10})
	if err != nil || len(letters) != 1 || letters[0].EventID != "bad" || letters[0].History[0].ErrorCode != eventing.ReasonBrokenTx {
		t.Errorf("got dead letters %+v, %v; want one, of the bad event, with its reason", letters, err)
	}
	effects, err := db.Effects(t.Context())
	if err != nil || len(effects) != 1 || effects[0].EventID != "good" {
		t.Errorf("got effects %v, %v; want only that of the good event", effects, err)
	}
}
