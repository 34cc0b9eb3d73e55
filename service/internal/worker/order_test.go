package worker_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// projection is what these tests need of a store.
type projection interface {
	// process applies arrivals, no two of them the same event, in one transaction, and again if others were in its way.
	process(ctx context.Context, arrivals []courier.Arrival) ([]courier.Effect, error)
	shipment(ctx context.Context, id string) (courier.Shipment, error)
}

// onEachProjection runs a test with what opens projections, each empty, of each kind.
func onEachProjection(t *testing.T, test func(t *testing.T, open func() projection)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, func() projection { return openSQL(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db")) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, func() projection { return openSQL(t, testserver.PostgresURL(t)) })
	})
	t.Run("mongodb", func(t *testing.T) {
		t.Parallel()
		test(t, func() projection { return openMongo(t) })
	})
}

type sqlProjection struct {
	*store.Store
	shipments *shipments.Shipments
}

func openSQL(t *testing.T, address string) projection {
	t.Helper()
	s := storetest.Migrated(t, address)
	return sqlProjection{s, shipments.New(s)}
}

func (p sqlProjection) process(ctx context.Context, arrivals []courier.Arrival) (effects []courier.Effect, err error) {
	now := time.Now()
	until := now.Add(time.Hour)
	if p.Postgres != nil {
		err = p.Postgres.InTx(ctx, func(tx pgx.Tx) (err error) {
			effects, err = shipments.Postgres{Shipments: p.shipments}.Process(ctx, tx, arrivals, now, until)
			return err
		})
		return effects, err
	}
	err = p.Events.InTx(ctx, func(tx *sql.Tx) (err error) {
		effects, err = shipments.SQLite{Shipments: p.shipments}.Process(ctx, tx, arrivals, now, until)
		return err
	})
	return effects, err
}

func (p sqlProjection) shipment(ctx context.Context, id string) (courier.Shipment, error) {
	return p.shipments.Get(ctx, id)
}

// disordered returns n events of so many shipments as they arrive: shuffled, some of them twice, and
// with many at one time, also of two couriers under one id.
func disordered(t *testing.T, n, shipmentCount int) []courier.Arrival {
	t.Helper()
	random := testkit.Random(t)
	began := time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	arrivals := make([]courier.Arrival, 0, n+n/10)
	for i := range n {
		p := courier.Payload{ShipmentID: fmt.Sprintf("shp_%d", random.IntN(shipmentCount))}
		fields := map[string]any{"shipmentId": p.ShipmentID, "note": i}
		if random.IntN(4) > 0 {
			p.Status = []string{"picked_up", "in_transit", "delivered"}[random.IntN(3)]
			fields["status"] = p.Status
		}
		if random.IntN(4) == 0 {
			p.OrderID = fmt.Sprintf("ord_%d", random.IntN(5))
			fields["orderId"] = p.OrderID
		}
		payload, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprintf("courier-x:%d", i)
		arrivals = append(arrivals, courier.Arrival{
			EnvelopeID: courier.EventID("courier-x", key), Attempt: 1, Payload: p,
			Event: courier.Event{
				// Below, at and beyond what databases keep of a second.
				EventID: fmt.Sprintf("evt_%d", i%(n/2)), EventType: "scan", IdempotencyKey: key, Source: "courier-x", Payload: payload,
				OccurredAt: began.Add(time.Duration(random.IntN(n/shipmentCount)) * 300 * time.Nanosecond),
			},
		})
	}
	for range n / 10 {
		arrivals = append(arrivals, arrivals[random.IntN(n)])
	}
	random.Shuffle(len(arrivals), func(i, j int) { arrivals[i], arrivals[j] = arrivals[j], arrivals[i] })
	return arrivals
}

// inOrder returns what the shipments come to if each event arrives once, when it happens.
func inOrder(arrivals []courier.Arrival) map[string]courier.Shipment {
	sorted := slices.SortedFunc(slices.Values(arrivals), func(a, b courier.Arrival) int {
		return cmp.Or(a.Event.OccurredAt.Truncate(time.Microsecond).Compare(b.Event.OccurredAt.Truncate(time.Microsecond)),
			cmp.Compare(a.Event.EventID, b.Event.EventID), cmp.Compare(a.Event.IdempotencyKey, b.Event.IdempotencyKey))
	})
	all := map[string]courier.Shipment{}
	for _, a := range sorted {
		s := all[a.Payload.ShipmentID]
		s.ShipmentID, s.LastEventID, s.LastEventType = a.Payload.ShipmentID, a.Event.EventID, a.Event.EventType
		s.LastEventAt = a.Event.OccurredAt.Truncate(time.Microsecond)
		s.CurrentState, s.OrderID = cmp.Or(a.Payload.Status, s.CurrentState), cmp.Or(a.Payload.OrderID, s.OrderID)
		var beside struct{ Note int }
		_ = json.Unmarshal(a.Event.Payload, &beside) // it was made here
		s.Metadata = fmt.Appendf(nil, `{"note":%d}`, beside.Note)
		all[a.Payload.ShipmentID] = s
	}
	return all
}

// batchesOf cuts arrivals into batches without two of the same event.
func batchesOf(arrivals []courier.Arrival, size int) (batches [][]courier.Arrival) {
	var batch []courier.Arrival
	in := map[string]bool{}
	for _, a := range arrivals {
		if len(batch) == size || in[a.EnvelopeID] {
			batches, batch = append(batches, batch), nil
			clear(in)
		}
		batch, in[a.EnvelopeID] = append(batch, a), true
	}
	return append(batches, batch)
}

// In whatever order events arrive, again and again, singly or in batches, several at a time, the shipments
// come to what they do in order.
func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100} {
		t.Run(fmt.Sprintf("batches of %d", size), func(t *testing.T) {
			t.Parallel()
			onEachProjection(t, func(t *testing.T, open func() projection) {
				p := open()
				n, shipmentCount := 5_000, 50
				if testkit.Long() {
					n, shipmentCount = 100_000, 1_000
				}
				if _, slow := p.(mongoProjection); slow {
					n, shipmentCount = n/20+150, shipmentCount/20+8 // 400 of 10, or 5,150 of 58
				}
				arrivals := disordered(t, n, shipmentCount)
				processAll(t, p, batchesOf(arrivals, size))
				for id, want := range inOrder(arrivals) {
					got, err := p.shipment(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					got.CreatedAt, got.UpdatedAt = time.Time{}, time.Time{}
					if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
						t.Fatalf("%s:\n got %+v\nwant %+v", id, got, want)
					}
				}
			})
		})
	}
}

// processAll processes batches, four at a time. None may fail, as they would for waiting in a circle.
func processAll(t *testing.T, p projection, batches [][]courier.Arrival) {
	t.Helper()
	next := make(chan []courier.Arrival)
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for batch := range next {
				if _, err := p.process(t.Context(), batch); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, batch := range batches {
		next <- batch
	}
	close(next)
	workers.Wait()
}

// A batch does what its events do one after the other: who is applied, who is late, and which states change.
func TestOrderWithinABatch(t *testing.T) {
	t.Parallel()
	onEachProjection(t, func(t *testing.T, open func() projection) {
		arrivals := disordered(t, 600, 12)
		singly, together := open(), open()
		if _, mongo := singly.(mongoProjection); mongo {
			arrivals = once(disordered(t, 240, 5))
		}
		for _, batch := range batchesOf(arrivals, 60) {
			var want []courier.Effect
			for i := range batch {
				effects, err := singly.process(t.Context(), batch[i:i+1])
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, effects...)
			}
			got, err := together.process(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%+v:\n got %+v\nwant %+v", batch[i], got[i], want[i])
				}
			}
		}
	})
}
