package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/internal/testkit"
)

// retryLater is when a failed settlement is tried again: long after the test.
const retryLater = time.Hour

const windowsEach = 10

// Stations that fail delay no others, and not even their own later windows.
func TestFailuresDelayNobody(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, address string) {
		cfg := testConfig()
		cfg.settlement.Retry.Base = retryLater
		w := start(t, address, cfg)
		healthy := []string{"h1", "h2", "h3", "h4", "h5"}
		for _, station := range healthy {
			w.setTariff("aurora", station, 20)
		}
		failing := []string{"f1", "f2", "f3", "f4"}
		retries := windowsEach * len(failing)

		control := w.settle(windowsEach*len(healthy), 0, healthy...)
		slowest := w.settle(windowsEach, retries, append(failing, "h1")...)
		t.Logf("from a window's end to its settlement: at most %v; where four of five fail %v", control, slowest)
		if limit := 3*control + time.Second; slowest > limit {
			t.Errorf("where others fail, a window waited for %v, more than %v", slowest, limit)
		}

		w.setTariff("aurora", "f1", 20) // its later windows do not wait for those that failed
		if own := w.settle(windowsEach, retries, "f1"); own > 3*control+time.Second {
			t.Errorf("a window waited for %v behind those of its station that had failed", own)
		}
	})
}

// settle closes windows of the stations in turns and waits until nothing is left to do
// but retries that are due later. It returns the longest time from a window's end to its
// settlement.
func (w world) settle(settlements, retries int, stations ...string) (slowest time.Duration) {
	w.Helper()
	w.exec(`DELETE FROM windows`)
	w.exec(`DELETE FROM settlements`)
	for range windowsEach {
		for _, station := range stations {
			w.closes(w.Context(), "aurora", station)
		}
	}
	testkit.Eventually(w, patient, func() error {
		pending := w.count(`SELECT count(*) FROM event_outbox WHERE status = 'pending'`)
		if left := w.count(`SELECT count(*) FROM event_deliveries`); pending != 0 || left != retries {
			return fmt.Errorf("%d events are pending and %d deliveries are left, want 0 and %d", pending, left, retries)
		}
		return nil
	})
	all, err := waits(w.Context(), w.db.read)
	if err != nil {
		w.Fatal(err)
	}
	if len(all) != settlements {
		w.Fatalf("%d windows are settled, want %d", len(all), settlements)
	}
	if retries > 0 {
		var due sqlstore.Timestamp
		if err := w.db.read.QueryRowContext(w.Context(), `SELECT min(due_at) FROM event_deliveries`).Scan(&due); err != nil {
			w.Fatal(err)
		}
		if left := time.Until(due.Time); left < retryLater/2 {
			w.Errorf("a retry is due in %v: this proves nothing", left)
		}
	}
	return all[len(all)-1]
}
