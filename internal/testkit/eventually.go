package testkit

import (
	"testing"
	"time"
)

// pollEvery is how often tests look for what nobody tells them.
const pollEvery = 10 * time.Millisecond

// Eventually looks every 10 ms until problem returns nil, and fails the test with the
// last problem if that takes longer than within.
func Eventually(tb testing.TB, within time.Duration, problem func() error) {
	tb.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			tb.Fatalf("after %v: %v", within, err)
		case <-tick.C:
		}
	}
}
