package gateway

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// scrape returns what a process tells Prometheus.
func scrape(t *testing.T, url string) (string, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soon}
	response, err := client.Get(url + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain")) {
		err = fmt.Errorf("/metrics: %s, %s", response.Status, response.Header.Get("Content-Type"))
	}
	return string(text), err
}

// Each process tells, openly, what it does and what waits in the store; of two gateways in one process
// each has its own.
func TestMetrics(t *testing.T) {
	t.Parallel()
	published := `events_published_total{event_type="shipment.status.updated"} 1`
	processed := `events_processed_total{event_type="shipment.status.updated",status="processed",subscriber="` + worker.Consumer + `"} 1`
	want := map[Parts][]string{API: nil, Dispatch: {published, "waybill_leases_held{"}, Work: {processed}, All: {published, processed}}
	urls, secret := map[Parts]string{}, "a secret"
	split, brokerURL := "sqlite:"+filepath.Join(t.TempDir(), "split.db"), testserver.RedisURL(t)
	for part := range want {
		cfg := testConfig(split, secret)
		if cfg.Parts, cfg.BrokerURL = part, brokerURL; part == All {
			cfg = testConfig("sqlite:"+filepath.Join(t.TempDir(), "all.db"), secret)
		}
		urls[part] = serve(t, cfg)
	}
	for _, part := range []Parts{API, All} {
		s := newSender(urls[part], secret, 1)
		defer s.close()
		body, _ := event(1, 1, time.Now())
		if a, err := s.post(t.Context(), body); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	for part, series := range want {
		testkit.Eventually(t, soon, func() error {
			text, err := scrape(t, urls[part])
			if err != nil {
				return err
			}
			for _, s := range append(series, "\nwaybill_outbox_lag_seconds ", "\nwaybill_store_scrape_errors_total 0", "\ngo_goroutines ", "\nprocess_") {
				if !strings.Contains(text, s) {
					return fmt.Errorf("the metrics of %s have no %s:\n%s", part, s, text)
				}
			}
			return nil
		})
	}
}
