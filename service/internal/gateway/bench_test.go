package gateway

import (
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
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
	url := serve(b, testConfig(storeURL, benchSecret))
	db := storetest.Open(b, storeURL).Read

	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	benchSend(b, url, b.N)
	accepted := time.Since(began)
	poll := time.NewTicker(10 * time.Millisecond) // looking all the time would be part of the load
	defer poll.Stop()
	for applied := 0; applied < b.N; <-poll.C {
		if err := db.QueryRowContext(b.Context(), `SELECT count(*) FROM shipment_events`).Scan(&applied); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "events/s")
	b.ReportMetric(float64(b.N)/accepted.Seconds(), "accepted/s")
}

func benchSend(b *testing.B, url string, n int) {
	s := newSender(url, benchSecret, benchClients)
	defer s.close()
	var next atomic.Int64
	var clients sync.WaitGroup
	for range benchClients {
		clients.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				body, key := event(i, benchShipments, time.Now())
				if a, err := s.post(b.Context(), body); err != nil || a.status != http.StatusAccepted {
					b.Errorf("%s: %d %s, %v", key, a.status, a.body, err)
					return
				}
			}
		})
	}
	clients.Wait()
}
