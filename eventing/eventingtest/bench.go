package eventingtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

const benchBatch = 1000

// BenchmarkStore measures the steps that a store bounds; events/s is the figure to
// compare.
func BenchmarkStore[Tx any](b *testing.B, be Backend[Tx]) {
	b.Run("Append/1 per transaction", func(b *testing.B) { benchAppend(b, be, 1) })
	b.Run(fmt.Sprintf("Append/%d per transaction", benchBatch), func(b *testing.B) { benchAppend(b, be, benchBatch) })
	b.Run("Dispatch", func(b *testing.B) { benchDispatch(b, be, "") })
	b.Run("Dispatch with a routing version", func(b *testing.B) { benchDispatch(b, be, "0123456789ab") })
	b.Run("ArriveAndSucceed", func(b *testing.B) { benchSucceed(b, be) })
}

// report reports events per second.
func report(b *testing.B, events int) {
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

func benchEvents(round, n int) []eventing.Appendable {
	events := make([]eventing.Appendable, n)
	for i := range events {
		e := order("", fmt.Sprintf("order/%d", (round*n+i)%100))
		e.Payload.Number = "a payload of some length, as a small event has it in practice, more or less"
		events[i] = e
	}
	return events
}

func benchAppend[Tx any](b *testing.B, be Backend[Tx], size int) {
	db := be.Open(b)
	outbox := eventing.NewOutbox[Tx](db, eventing.OutboxConfig{})
	ctx := context.Background()
	b.ReportAllocs()
	round := 0
	for b.Loop() {
		events := benchEvents(round, size)
		if err := outbox.InTx(ctx, func(tx Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
			b.Fatal(err)
		}
		round++
	}
	report(b, round*size)
}

// benchDispatch claims and settles batches, the publishing left out.
func benchDispatch[Tx any](b *testing.B, be Backend[Tx], version string) {
	db := be.Open(b)
	outbox := eventing.NewOutbox[Tx](db, eventing.OutboxConfig{})
	ctx := context.Background()
	now := time.Now()
	lease := eventing.LeaseRequest{Scope: eventing.DispatchScope, Holder: "bench", Now: now, Until: now.Add(24 * time.Hour)}
	if _, err := db.AcquireLeases(ctx, lease); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	round := 0
	for b.Loop() {
		b.StopTimer()
		events := benchEvents(round, benchBatch)
		if err := outbox.InTx(ctx, func(tx Tx) error { return outbox.Append(ctx, tx, events...) }); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		claimed, err := db.Claim(ctx, eventing.ClaimRequest{Partitions: allPartitions(benchBatch), Now: now})
		if err != nil {
			b.Fatal(err)
		}
		n, err := db.Settle(ctx, eventing.SettleRequest{Holder: "bench", Now: now, Rows: claimed.Rows, RoutingVersion: version})
		if err != nil || n != benchBatch {
			b.Fatalf("settled %d of %d: %v", n, benchBatch, err)
		}
		round++
	}
	report(b, round*benchBatch)
}

// benchSucceed is the way of an event through a consumer whose handler writes one row.
func benchSucceed[Tx any](b *testing.B, be Backend[Tx]) {
	db := be.Open(b)
	ctx := context.Background()
	now := time.Now()
	b.ReportAllocs()
	round := 0
	for b.Loop() {
		id := fmt.Sprintf("e%d", round)
		d := eventing.Delivery{
			Consumer: "billing", EventID: id, EventType: "order.placed", Partition: eventing.PartitionOf("", id),
			Payload: []byte(`{"event_id":"` + id + `","event_type":"order.placed","payload":{}}`),
		}
		decision, run, err := db.Arrive(ctx, d, nil, now)
		if err != nil || decision != eventing.DecideRun {
			b.Fatal(decision, err)
		}
		if err := db.Succeed(ctx, eventing.Success{
			Run: run, Now: now, InboxUntil: now.Add(time.Hour), DeadLetterUntil: now.Add(time.Hour),
			Effect: func(ctx context.Context, tx any) error {
				typed, ok := tx.(Tx)
				if !ok {
					return fmt.Errorf("the store hands out a transaction of type %T", tx)
				}
				return db.Effect(ctx, typed, d.Consumer, id)
			},
		}); err != nil {
			b.Fatal(err)
		}
		round++
	}
	report(b, round)
}
