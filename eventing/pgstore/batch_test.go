package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/sqltest"
)

// BenchmarkConsume takes events from the message to the ack, the effect being one row
// for each: with a transaction for each event, and with one for a batch. The same number of
// messages is in hand in both. "times" is the second rate over the first, of the same run.
func BenchmarkConsume(b *testing.B) {
	const rounds = 2000 // events for each turn of either
	d := take(b)
	store := pgstore.New(d.pool)
	one, err := eventing.NewConsumer(store, func(ctx context.Context, e eventing.Envelope) error {
		tx, _ := eventing.TxFromContext[pgx.Tx](ctx)
		_, err := tx.Exec(ctx, sqltest.InsertEffect, "one", e.ID)
		return err
	}, eventing.ConsumerConfig{Name: "one", Transactional: true})
	if err != nil {
		b.Fatal(err)
	}
	batch, err := eventing.NewBatchConsumer(store, func(ctx context.Context, events []eventing.Envelope) error {
		tx, _ := eventing.TxFromContext[pgx.Tx](ctx)
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"consumer", "event_id"},
			pgx.CopyFromSlice(len(events), func(i int) ([]any, error) { return []any{"batch", events[i].ID}, nil }))
		return err
	}, eventing.ConsumerConfig{Name: "batch"})
	if err != nil {
		b.Fatal(err)
	}
	var spent [2]time.Duration
	turns := 0
	for b.Loop() {
		for i, c := range []*eventing.Consumer{one, batch} {
			messages := messagesOf(b, rounds)
			began := time.Now()
			if err := consume(c, messages, batch.Window()); err != nil {
				b.Fatal(err)
			}
			spent[i] += time.Since(began)
		}
		turns++
	}
	rate := func(d time.Duration) float64 { return float64(turns*rounds) / d.Seconds() }
	b.ReportMetric(rate(spent[0]), "one-events/s")
	b.ReportMetric(rate(spent[1]), "batch-events/s")
	b.ReportMetric(rate(spent[1])/rate(spent[0]), "times")
	b.ReportMetric(0, "ns/op")
	var effects, inbox int
	if err := d.pool.QueryRow(context.Background(), `SELECT (SELECT count(*) FROM effects), (SELECT count(*) FROM processed_events)`).Scan(&effects, &inbox); err != nil {
		b.Fatal(err)
	}
	if want := 2 * turns * rounds; effects != want || inbox != want {
		b.Fatalf("%d effects and %d inbox rows of %d events", effects, inbox, want)
	}
}

// messagesOf returns new events as a broker has them.
func messagesOf(b *testing.B, n int) []*message.Message {
	b.Helper()
	messages := make([]*message.Message, n)
	for i := range messages {
		e := eventing.Envelope{Payload: []byte(`{"number":"a payload of some length, as a small event has it in practice, more or less"}`)}
		e.ID, e.Type, e.OccurredAt, e.SchemaVersion = eventing.NewID(), "order.placed", time.Now(), 1
		e.AggregateType, e.AggregateID = "order", fmt.Sprint(i)
		m, err := eventing.EnvelopeCodec{}.Marshal(e)
		if err != nil {
			b.Fatal(err)
		}
		messages[i] = m
	}
	return messages
}

// consume hands messages to a consumer, as many at a time as are in the window.
func consume(c *eventing.Consumer, messages []*message.Message, window int) error {
	slots := make(chan struct{}, window)
	errs := make([]error, len(messages))
	var all sync.WaitGroup
	for i, m := range messages {
		slots <- struct{}{}
		all.Go(func() {
			errs[i] = c.Receive(context.Background(), m)
			<-slots
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
