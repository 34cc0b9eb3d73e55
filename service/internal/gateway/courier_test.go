package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// sender signs events and posts them.
type sender struct {
	url    string // of the gateway
	secret string
	keyID  string // optional
	http   *http.Client
}

func newSender(url, secret string, connections int) *sender {
	return &sender{url: url, secret: secret, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}, Timeout: 30 * time.Second,
	}}
}

func (s *sender) close() { s.http.CloseIdleConnections() }

// answer is what the gateway said.
type answer struct {
	status  int
	traceID string
	body    string
}

// post signs the event anew and posts it. An error is a request that got no whole
// answer.
func (s *sender) post(ctx context.Context, event []byte) (a answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/events/courier", bytes.NewReader(event))
	if err != nil {
		return a, err
	}
	timestamp, signature := courier.Sign([]byte(s.secret), event, time.Now())
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(courier.HeaderTimestamp, timestamp)
	r.Header.Set(courier.HeaderSignature, signature)
	if s.keyID != "" {
		r.Header.Set(courier.HeaderKeyID, s.keyID)
	}
	response, err := s.http.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	a.status, a.body = response.StatusCode, string(body)
	if a.status != http.StatusAccepted {
		return a, nil
	}
	var accepted struct{ TraceID string }
	if err := json.Unmarshal(body, &accepted); err != nil || accepted.TraceID == "" {
		return a, fmt.Errorf("accepted without a trace id: %s: %w", body, err)
	}
	a.traceID = accepted.TraceID
	return a, nil
}

// event is the body of the event with a number, of one of shipments shipments, and
// its idempotency key.
func event(i, shipments int64, at time.Time) (body []byte, key string) {
	key = fmt.Sprintf("courier-x:evt_%d", i)
	return fmt.Appendf(nil, `{"eventId":"evt_%d","eventType":"shipment.status.updated","occurredAt":%q,"source":"courier-x","idempotencyKey":%q,`+
		`"payload":{"shipmentId":"shp_%d","orderId":"ord_789","status":"out_for_delivery"}}`, i, at.UTC().Format(time.RFC3339Nano), key, i%shipments), key
}

// couriers send distinct events, one after the other each, as real ones would:
// what got no answer is sent again until it is accepted.
type couriers struct {
	sender     *sender
	unanswered atomic.Int64 // requests
	stop       func() (accepted []string)
}

const (
	courierCount   = 6
	shipmentCount  = 20                    // few: handlers meet at a shipment's row
	sendAgainAfter = 20 * time.Millisecond // the gateway may be down
	giveUpAfter    = time.Minute           // with one event
)

// startCouriers has them send until stop, which returns the idempotency keys of
// what was accepted: all that they sent. The events are numbered from the one after.
func startCouriers(t *testing.T, s *sender, after int64) *couriers {
	t.Helper()
	c := &couriers{sender: s}
	var (
		next     atomic.Int64
		running  sync.WaitGroup
		mu       sync.Mutex
		accepted []string
	)
	next.Store(after)
	stopped := make(chan struct{})
	for range courierCount {
		running.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
				}
				body, key := event(next.Add(1), shipmentCount, time.Now())
				if err := c.deliver(body); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				mu.Lock()
				accepted = append(accepted, key)
				mu.Unlock()
			}
		})
	}
	c.stop = sync.OnceValue(func() []string {
		close(stopped)
		running.Wait()
		s.close()
		return slices.Clone(accepted)
	})
	t.Cleanup(func() { c.stop() })
	return c
}

// deliver posts an event until it is accepted.
func (c *couriers) deliver(body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), giveUpAfter)
	defer cancel()
	for {
		a, err := c.sender.post(ctx, body)
		switch {
		case err == nil && a.status == http.StatusAccepted:
			return nil
		case err == nil && a.status != http.StatusServiceUnavailable:
			return fmt.Errorf("answered %d: %s", a.status, a.body)
		case err != nil:
			c.unanswered.Add(1)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("given up: last answer %d %s, error %w", a.status, a.body, err)
		case <-time.After(sendAgainAfter):
		}
	}
}
