package gateway

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// BenchmarkWorker has b.N accepted events of 1,000 shipments wait in the queue, starts a worker, and stops
// the clock when all of them are projected. Three in four change their shipment's state, and tell others with a broker
// that others can read. Give it -benchtime 20000x or more. go-µs/event is the processor time of this process.
func BenchmarkWorker(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(GCPercent)) // as in a process of its own
	for _, size := range []int{1, 100} {
		name := fmt.Sprintf("batch-%d", size)
		if size == 1 {
			name = "tx-each"
		}
		b.Run("postgres+redis/"+name, func(b *testing.B) {
			cfg := testConfig(testserver.PostgresURL(b), benchSecret)
			cfg.Parts, cfg.HTTPAddr, cfg.BrokerURL, cfg.WorkerBatch = Work, "", testserver.RedisURL(b), size
			benchWorker(b, cfg)
		})
		b.Run("sqlite+inproc/"+name, func(b *testing.B) {
			cfg := testConfig("sqlite:"+filepath.Join(b.TempDir(), "waybill.db"), benchSecret)
			cfg.WorkerBatch = size
			benchWorker(b, cfg)
		})
	}
}

func benchWorker(b *testing.B, cfg Config) {
	db := storetest.Open(b, cfg.StoreURL)
	if _, err := db.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	benchEnqueue(b, db, cfg, b.N)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	ready := make(chan struct{})
	cfg.Ready = func(Started) { close(ready) }
	before := processorTime(b)
	b.ResetTimer()
	began := time.Now()
	go func() { ended <- Run(ctx, cfg) }()
	<-ready
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for last := 0; last < b.N; <-poll.C {
		if err := db.Read.QueryRowContext(b.Context(), `SELECT coalesce(max(seq), 0) FROM shipment_events`).Scan(&last); err != nil {
			b.Fatal(err)
		}
	}
	for processed := 0; processed < b.N; <-poll.C { // what was rolled back has left gaps
		if err := db.Read.QueryRowContext(b.Context(), `SELECT count(*) FROM courier_ledger WHERE status = 'processed'`).Scan(&processed); err != nil {
			b.Fatal(err)
		}
	}
	took := time.Since(began)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/took.Seconds(), "events/s")
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N), "go-µs/event")
	stop()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchEnqueue puts n events into the ledger, and into the queue or, where that is in the process, the outbox.
func benchEnqueue(b *testing.B, db *store.Store, cfg Config, n int) {
	var publisher message.Publisher
	if cfg.BrokerURL != inProcess {
		open, err := parseBroker(cfg.BrokerURL)
		if err != nil {
			b.Fatal(err)
		}
		queue, err := open(cfg)
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := errors.Join(queue.subscriber.Close(), queue.close()); err != nil {
				b.Error(err)
			}
		}()
		publisher = queue.publisher
	}
	const chunk = 500
	for from := 0; from < n; from += chunk {
		var rows []eventing.OutboxRow
		var messages []*message.Message
		if err := db.Events.InTx(b.Context(), func(tx *sql.Tx) error {
			for i := from; i < min(from+chunk, n); i++ {
				e := benchEnvelope(b, i)
				m, err := eventing.PayloadCodec{}.Marshal(e)
				if err != nil {
					return err
				}
				payload, err := eventing.EncodeEnvelope(e)
				if err != nil {
					return err
				}
				messages = append(messages, m)
				rows = append(rows, eventing.OutboxRow{
					ID: e.ID, EventID: e.ID, EventType: e.Type, Payload: payload, OrderingKey: e.OrderKey(),
					Partition: eventing.PartitionOf(e.OrderKey(), e.ID), CreatedAt: e.OccurredAt,
				})
			}
			if publisher == nil {
				if err := db.Events.AppendRows(b.Context(), tx, rows); err != nil {
					return err
				}
			}
			return benchLedger(b.Context(), db, tx, rows)
		}); err != nil {
			b.Fatal(err)
		}
		if publisher != nil {
			if err := publisher.Publish(worker.Queue, messages...); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func benchEnvelope(b *testing.B, i int) eventing.Envelope {
	b.Helper()
	statuses := []string{"picked_up", "in_transit", "out_for_delivery", "out_for_delivery"}
	id, shipment := fmt.Sprintf("evt_%d", i), fmt.Sprintf("shp_%d", i%benchShipments)
	now := time.Now().UTC()
	payload, err := json.Marshal(courier.Event{
		EventID: id, EventType: "shipment.status.updated", OccurredAt: now, Source: "courier-x", IdempotencyKey: "courier-x:" + id,
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", ReceivedAt: now, Attempt: 1, SignatureMeta: courier.SignatureMeta{Algorithm: "hmac-sha256", Timestamp: now.Unix(), Signature: strings.Repeat("0f", 32)},
		Payload: fmt.Appendf(nil, `{"shipmentId":%q,"orderId":"ord_%d","status":%q,"location":"Rotterdam","note":"as planned"}`, shipment, i%benchShipments, statuses[i/benchShipments%4]),
	})
	if err != nil {
		b.Fatal(err)
	}
	return eventing.Envelope{
		Header: eventing.Header{
			ID: courier.EventID("courier-x", "courier-x:"+id), Type: "shipment.status.updated", OccurredAt: now, CorrelationID: "4bf92f3577b34da6a3ce929d0e0e4736",
			SchemaVersion: 1, AggregateType: "shipment", AggregateID: shipment, IdempotencyKey: "courier-x:" + id,
		},
		Payload: payload,
	}
}

func benchLedger(ctx context.Context, db *store.Store, tx *sql.Tx, rows []eventing.OutboxRow) error {
	var b strings.Builder
	b.WriteString(`INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status, first_seen_at, updated_at) VALUES `)
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		e, err := eventing.DecodeEnvelope(r.Payload)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, `('%s', '%s', '%s', '%s', 'courier-x', 'shp', $1, $1, '4bf92f3577b34da6a3ce929d0e0e4736', '%064d', 'received', $1, $1)`, e.IdempotencyKey, r.ID, r.ID, r.EventType, i)
	}
	_, err := tx.ExecContext(ctx, b.String(), db.Time(time.Now()))
	return err
}
