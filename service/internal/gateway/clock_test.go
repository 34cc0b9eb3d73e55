package gateway

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

// stepping is a clock that somebody sets.
type stepping struct{ off atomic.Int64 }

func (s *stepping) now() time.Time       { return time.Now().Add(time.Duration(s.off.Load())) }
func (s *stepping) step(d time.Duration) { s.off.Add(int64(d)) }

// The clock of each process in turn is set ten minutes ahead, back, and ten minutes behind, while events come in: leases
// are taken over from live holders then, or not let go of, and nothing is lost or doubled.
func TestCrashClockSteps(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, storeURL, brokerURL string) {
		cfg := testConfig(storeURL, siteSecret)
		cfg.BrokerURL, cfg.LeaseTTL = brokerURL, time.Second
		cfg.SignatureMaxSkew = time.Hour // lest all events are refused meanwhile
		parts := []Parts{All}
		if brokerURL != inProcess {
			parts = []Parts{API, Dispatch, Dispatch, Work, Work}
		}
		clocks := make([]*stepping, len(parts))
		var api string
		for i, part := range parts {
			clocks[i] = &stepping{}
			cfg.Parts, cfg.now = part, clocks[i].now
			if url := serve(t, cfg); i == 0 {
				api = url
			}
		}
		rate, settles := 100, 500*time.Millisecond
		if testkit.Long() {
			rate, settles = 1000, 5*time.Second
		}
		if strings.HasPrefix(storeURL, "mongodb:") {
			rate = max(20, rate/20) // the server that stands in for MongoDB takes no more
		}
		l := startLoad(t, api, siteSecret, rate)
		for _, c := range clocks {
			for _, d := range []time.Duration{10 * time.Minute, -10 * time.Minute, -10 * time.Minute, 10 * time.Minute} {
				c.step(d)
				l.goesOn(t, settles)
			}
		}
		l.stop()
		t.Logf("%d events", len(l.accepted))
		accountedEventually(t, openView(t, storeURL), l.accepted)
	})
}

// A gateway whose clock is off by more than the skew that it allows takes no event, and says so.
func TestClockIsOff(t *testing.T) {
	t.Parallel()
	clock := &stepping{}
	cfg := testConfig("sqlite:"+t.TempDir()+"/waybill.db", siteSecret)
	cfg.now = clock.now
	s := newSender(serve(t, cfg), siteSecret, 1)
	defer s.close()
	body, _ := event(1, 1, time.Now())
	for _, step := range []struct {
		by   time.Duration
		want int
	}{{10 * time.Minute, http.StatusUnauthorized}, {-20 * time.Minute, http.StatusUnauthorized}, {10 * time.Minute, http.StatusAccepted}} {
		clock.step(step.by)
		if a, err := s.post(t.Context(), body); err != nil || a.status != step.want {
			t.Errorf("after a step of %v: %+v, %v, want %d", step.by, a, err, step.want)
		}
	}
}
