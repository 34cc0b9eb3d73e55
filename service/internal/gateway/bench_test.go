package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
)

// BenchmarkEndToEnd sends distinct signed events over HTTP, 16 at a time, to a gateway
// in this process, and stops the clock when the last is applied to its shipment:
// the client's work is in the figures. accepted/s is the rate of the 202s alone.
func BenchmarkEndToEnd(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchEndToEnd(b, "sqlite:"+filepath.Join(b.TempDir(), "waybill.db")) })
	b.Run("postgres", func(b *testing.B) { benchEndToEnd(b, testserver.PostgresURL(b)) })
}

const (
	benchClients   = 16
	benchShipments = 1000
	benchSecret    = "benchmark secret"
)

func benchEndToEnd(b *testing.B, storeURL string) {
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan Started, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{
			HTTPAddr: "127.0.0.1:0", StoreURL: storeURL, BrokerURL: "inproc:", HMACSecret: benchSecret, AdminToken: benchSecret,
			SignatureMaxSkew: courier.DefaultMaxSkew, RetryMaxAttempts: 5, RetryBackoffBaseMS: 1000, RetryBackoffMultiplier: 2,
			ProcessedTTLDays: 30, DLQTTLDays: 90, WorkerConcurrency: 8, LeaseTTL: 5 * time.Second, ShutdownTimeout: 10 * time.Second,
			Logger: slog.New(slog.DiscardHandler), Ready: func(s Started) { ready <- s },
		})
	}()
	var url string
	select {
	case s := <-ready:
		url = s.URL + "/v1/events/courier"
	case err := <-ended:
		b.Fatal(err)
	}
	s, err := store.Open(ctx, storeURL)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()

	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	benchSend(b, url, b.N)
	accepted := time.Since(began)
	poll := time.NewTicker(10 * time.Millisecond) // looking all the time would be part of the load
	defer poll.Stop()
	for applied := 0; applied < b.N; <-poll.C {
		if err := s.Read.QueryRowContext(ctx, `SELECT count(*) FROM shipment_events`).Scan(&applied); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/accepted.Seconds(), "accepted/s")
}

func benchSend(b *testing.B, url string, n int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchClients}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var clients sync.WaitGroup
	for range benchClients {
		clients.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if err := benchPost(client, url, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
}

func benchPost(client *http.Client, url string, i int64) error {
	now := time.Now()
	body := fmt.Appendf(nil, `{"eventId":"evt_%d","eventType":"shipment.status.updated","occurredAt":%q,"source":"courier-x","idempotencyKey":"courier-x:evt_%d",`+
		`"payload":{"shipmentId":"shp_%d","orderId":"ord_789","status":"out_for_delivery"}}`, i, now.UTC().Format(time.RFC3339Nano), i, i%benchShipments)
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	timestamp, signature := courier.Sign([]byte(benchSecret), body, now)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(courier.HeaderTimestamp, timestamp)
	r.Header.Set(courier.HeaderSignature, signature)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("event %d: %s: %s", i, answer.Status, text)
	}
	return answer.Body.Close()
}
