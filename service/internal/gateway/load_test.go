package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

// load is couriers who send distinct events at a steady rate, whatever becomes of the gateway: what
// is not accepted is sent again until it is. One in some is poisonous.
type load struct {
	rate        int // events a second
	sender      *sender
	unanswered  atomic.Int64 // requests
	unavailable atomic.Int64 // answers with 503
	late        atomic.Int64 // events that had to wait for a free courier
	count       atomic.Int64 // of accepted events

	mu       sync.Mutex
	accepted map[string]bool // by idempotency key: poisonous
	stop     func()
}

const (
	loadSenders   = 64
	loadPoison    = 50 // one event in so many
	loadShipments = 200
	outageLimit   = 3 * time.Minute // with one event
)

// startLoad has them send so many events a second until stop, which waits for all to be accepted.
func startLoad(t *testing.T, url, secret string, rate int) *load {
	t.Helper()
	l := &load{rate: rate, sender: newSender(url, secret, loadSenders), accepted: map[string]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	work := make(chan int64)
	var sending sync.WaitGroup
	for range loadSenders {
		sending.Go(func() {
			for i := range work {
				if err := l.deliver(i); err != nil {
					t.Errorf("event %d: %v", i, err)
				}
			}
		})
	}
	sending.Go(func() {
		defer close(work)
		const every = 10 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		began := time.Now()
		for next := int64(1); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for due := int64(time.Since(began).Seconds() * float64(rate)); next <= due; next++ {
				select {
				case work <- next:
					continue
				default:
				}
				l.late.Add(1)
				select {
				case work <- next:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	l.stop = sync.OnceFunc(func() {
		stop()
		sending.Wait()
		l.sender.close()
	})
	t.Cleanup(l.stop)
	return l
}

// goesOn waits until as many more events have been accepted as are sent in a time.
func (l *load) goesOn(t *testing.T, d time.Duration) {
	t.Helper()
	want := l.count.Load() + int64(d.Seconds()*float64(l.rate))
	testkit.Eventually(t, patient+d, func() error {
		if got := l.count.Load(); got < want {
			return fmt.Errorf("%d events accepted, want %d", got, want)
		}
		return nil
	})
}

func (l *load) deliver(i int64) error {
	body, key := event(i, loadShipments, time.Now())
	poisonous := i%loadPoison == 0
	if poisonous {
		body = bytes.Replace(body, []byte("out_for_delivery"), []byte("?"), 1)
	}
	ctx, cancel := context.WithTimeout(context.Background(), outageLimit)
	defer cancel()
	for {
		a, err := l.sender.post(ctx, body)
		switch {
		case err != nil:
			l.unanswered.Add(1)
		case a.status == http.StatusAccepted:
			l.mu.Lock()
			l.accepted[key] = poisonous
			l.mu.Unlock()
			l.count.Add(1)
			return nil
		case a.status == http.StatusServiceUnavailable:
			l.unavailable.Add(1)
		default:
			return fmt.Errorf("answered %d: %s", a.status, a.body)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("given up: last answer %d %s, error %w", a.status, a.body, err)
		case <-time.After(sendAgainAfter):
		}
	}
}
