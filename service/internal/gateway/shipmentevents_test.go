package gateway

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/schemas/schematest"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// Others are told of each change of a shipment's state, once, and of nothing else.
func TestShipmentEvents(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, storeURL, brokerURL string) {
		cfg := testConfig(storeURL, "secret")
		cfg.BrokerURL, cfg.WorkerBatch = brokerURL, 100
		s := newSender(serve(t, cfg), "secret", 1)
		defer s.close()
		changes := listen(t, brokerURL, worker.StateQueue)
		db := storetest.Open(t, storeURL).Read
		var keys []string
		accept := func(n int, second int, fields string) (traceID string) {
			t.Helper()
			body := fmt.Sprintf(`{"eventId":"evt_%d","eventType":%q,"occurredAt":"2026-02-26T12:00:%02dZ","source":"courier-x","idempotencyKey":"courier-x:evt_%d",`+
				`"payload":{"shipmentId":"shp_1"%s}}`, n, worker.StateChangeType, second, n, fields)
			a, err := s.post(t.Context(), []byte(body))
			if err != nil || a.status != http.StatusAccepted {
				t.Fatalf("%+v, %v", a, err)
			}
			keys = append(keys, fmt.Sprintf("courier-x:evt_%d", n))
			if f := auditEventually(t, db, keys, soon); f.err() != nil {
				t.Fatal(f.err())
			}
			return a.traceID
		}
		accept(1, 10, `,"status":"picked_up"`)
		accept(2, 5, `,"status":"in_transit"`) // late
		accept(3, 20, `,"status":"picked_up"`) // the same state
		accept(4, 30, `,"orderId":"ord_1"`)    // another part
		traceID := accept(5, 40, `,"status":"delivered"`)
		m, first := next(t, changes)
		if err := schematest.Validate(worker.StateChangeType, 1, m.Payload); err != nil {
			t.Errorf("%s: %v", m.Payload, err)
		}
		if first["previousState"] != "" || first["currentState"] != "picked_up" {
			t.Errorf("first %v", first)
		}
		m, second := next(t, changes)
		if err := schematest.Validate(worker.StateChangeType, 1, m.Payload); err != nil {
			t.Errorf("%s: %v", m.Payload, err)
		}
		want := []string{"changedAt", "currentState", "eventId", "eventType", "occurredAt", "orderId", "previousState", "shipmentId", "source"}
		if !slices.Equal(keysOf(second), want) || second["previousState"] != "picked_up" || second["currentState"] != "delivered" || second["eventId"] != "evt_5" ||
			second["orderId"] != "ord_1" || second["occurredAt"] != "2026-02-26T12:00:40Z" {
			t.Errorf("then %s", m.Payload)
		}
		cause := courier.EventID("courier-x", "courier-x:evt_5")
		for name, want := range map[string]string{
			"event_id": courier.StateChangeID(cause), "event_type": worker.StateChangeType, "correlation_id": traceID, "causation_id": cause,
			"aggregate_type": "shipment", "aggregate_id": "shp_1",
		} {
			if got := m.Metadata.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	})
}

// In the process nobody can read the queues: nothing is written for them, and what is left from another broker
// holds up nothing.
func TestQueuesThatNobodyReads(t *testing.T) {
	t.Parallel()
	storeURL := "sqlite:" + filepath.Join(t.TempDir(), "waybill.db")
	db := storetest.Open(t, storeURL)
	if err := db.Events.InTx(t.Context(), func(tx *sql.Tx) error {
		var rows []eventing.OutboxRow
		for _, queue := range []string{worker.StateQueue, deadLetterQueue} {
			e := eventing.Envelope{Header: eventing.Header{ID: eventing.NewID(), Type: "left", OccurredAt: time.Now(), SchemaVersion: 1, CorrelationID: "c"}, Payload: []byte("{}")}
			payload, err := eventing.EncodeEnvelope(e)
			if err != nil {
				return err
			}
			rows = append(rows, eventing.OutboxRow{ID: e.ID, EventID: e.ID, EventType: e.Type, Payload: payload, CreatedAt: time.Now(), Consumer: queue})
		}
		return db.Events.AppendRows(t.Context(), tx, rows)
	}); err != nil {
		t.Fatal(err)
	}
	s := newSender(serve(t, testConfig(storeURL, "secret")), "secret", 1)
	defer s.close()
	body, key := event(1, 1, time.Now())
	if a, err := s.post(t.Context(), body); err != nil || a.status != http.StatusAccepted {
		t.Fatalf("%+v, %v", a, err)
	}
	if f := auditEventually(t, db.Read, []string{key}, soon); f.err() != nil {
		t.Fatal(f.err())
	}
	testkit.Eventually(t, soon, func() error {
		var rows, sent int
		if err := db.Read.QueryRowContext(t.Context(), `SELECT count(*), count(CASE WHEN status = 'sent' THEN 1 END) FROM event_outbox`).Scan(&rows, &sent); err != nil {
			return err
		}
		if rows != 3 || sent != 3 {
			return fmt.Errorf("%d of %d rows are sent, want 3 of 3", sent, rows)
		}
		return nil
	})
}

// A queue that nobody reads does not grow without an end.
func TestShipmentEventsAreBounded(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, storeURL, brokerURL string) {
		const keep, published = 1000, 5000
		cfg := testConfig(storeURL, "secret")
		cfg.ShipmentEventsMaxLen = keep
		open, err := parseBroker(brokerURL)
		if err != nil {
			t.Fatal(err)
		}
		b, err := open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(b.subscriber.Close(), b.close()); err != nil {
				t.Error(err)
			}
		})
		for range published / 100 {
			var topics []string
			var messages []*message.Message
			for range 100 {
				topics = append(topics, worker.StateQueue, worker.Queue)
				messages = append(messages, message.NewMessage(eventing.NewID(), []byte("{}")), message.NewMessage(eventing.NewID(), []byte("{}")))
			}
			if err := b.publisher.(eventing.BatchPublisher).PublishBatch(t.Context(), topics, messages); err != nil {
				t.Fatal(err)
			}
		}
		length := lengthOf(t, brokerURL)
		if n := length(worker.StateQueue); n < keep || n > 2*keep {
			t.Errorf("%d messages are kept, want about %d", n, keep)
		}
		if n := length(worker.Queue); n != published {
			t.Errorf("of the other queue %d messages are kept, want all %d", n, published)
		}
	})
}

func lengthOf(t *testing.T, brokerURL string) func(topic string) int64 {
	if !strings.HasPrefix(brokerURL, "redis") {
		db := storetest.Open(t, brokerURL).Read
		return func(topic string) (n int64) {
			if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM "watermill_`+topic+`"`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	options, err := redis.ParseURL(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return func(topic string) int64 {
		n, err := client.XLen(context.WithoutCancel(t.Context()), topic).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
}
