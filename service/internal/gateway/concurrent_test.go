package gateway

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// Of 1,000 requests at once, for 200 keys, each gets the answer that it would get alone: for each
// key one body is accepted, all repeats of that with its trace id, and all others are conflicts.
func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, storeURL string) {
		const keys, each, connections = 200, 5, 128 // of each five, two have another body
		cfg := testConfig(storeURL, "secret")
		cfg.Parts = API
		s := newSender(serve(t, cfg), "secret", connections)
		defer s.close()
		answers := make([][each]answer, keys)
		var all sync.WaitGroup
		now := time.Now()
		for n := range keys * each {
			all.Go(func() {
				key, i := n%keys, n/keys
				body, _ := event(int64(key), keys, now)
				if i >= 3 {
					body = []byte(strings.Replace(string(body), "ord_789", "another order", 1))
				}
				a, err := s.post(t.Context(), body)
				if err != nil {
					t.Error(err)
				}
				answers[key][i] = a
			})
		}
		all.Wait()
		for key, got := range answers {
			if fault := faultOf(got[:3], got[3:]); fault != "" {
				t.Errorf("key %d: %s: %+v", key, fault, got)
			}
		}
		if n := len(stored(t, storetest.Open(t, storeURL).Read)); n != keys {
			t.Errorf("%d events are stored, want %d", n, keys)
		}
	})
}

// faultOf judges the answers to the requests with one body, and with the other, of a key.
func faultOf(one, other []answer) string {
	accepted, refused := one, other
	if one[0].status != http.StatusAccepted {
		accepted, refused = other, one
	}
	for _, a := range accepted {
		if a.status != http.StatusAccepted || a.traceID != accepted[0].traceID {
			return "not all of the body that was first have the same 202"
		}
	}
	for _, a := range refused {
		if a.status != http.StatusConflict {
			return "not all of the other body are conflicts"
		}
	}
	return ""
}

// stored returns the idempotency keys of the events that are in the ledger, and once in the
// outbox.
func stored(t *testing.T, db *sql.DB) map[string]bool {
	t.Helper()
	keys, err := texts(t.Context(), db, `SELECT l.idempotency_key FROM courier_ledger l
		WHERE (SELECT count(*) FROM event_outbox o WHERE o.id = l.envelope_id AND o.status = 'pending') = 1
		AND NOT EXISTS (SELECT 1 FROM event_outbox o WHERE o.event_id = l.envelope_id AND o.id <> o.event_id)`)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool, len(keys))
	for _, key := range keys {
		known[key] = true
	}
	return known
}

// What a gateway under load has answered 202 for is stored, and once, however often it is killed.
func TestCrashOfGroups(t *testing.T) {
	t.Parallel()
	const kills, clients = 4, 48
	binary := buildGateway(t)
	onEachStore(t, func(t *testing.T, storeURL string) {
		s := newStorm(t, storeURL, func() *exec.Cmd { return exec.Command(binary, "api") })
		sender := newSender("http://"+s.address, s.secret, clients)
		var (
			next     atomic.Int64
			mu       sync.Mutex
			accepted []string
			running  sync.WaitGroup
		)
		ctx, stop := context.WithCancel(t.Context())
		for range clients {
			running.Go(func() {
				for ctx.Err() == nil {
					body, key := event(next.Add(1), shipmentCount, time.Now())
					a, err := sender.post(ctx, body)
					if err != nil {
						select { // the gateway is down
						case <-ctx.Done():
						case <-time.After(sendAgainAfter):
						}
						continue
					}
					if a.status != http.StatusAccepted {
						t.Errorf("%s: answered %d: %s", key, a.status, a.body)
						return
					}
					mu.Lock()
					accepted = append(accepted, key)
					mu.Unlock()
				}
			})
		}
		had := func(n int) func() error {
			return func() error {
				mu.Lock()
				defer mu.Unlock()
				if len(accepted) < n {
					return fmt.Errorf("%d of %d events are accepted", len(accepted), n)
				}
				return nil
			}
		}
		for i := range kills {
			p := s.start()
			p.Await(p.ready, startWithin)
			testkit.Eventually(t, patient, had((i+1)*300))
			p.Kill(s.within(50 * time.Millisecond))
		}
		last := s.start()
		last.Await(last.ready, startWithin)
		testkit.Eventually(t, patient, had((kills+1)*300))
		last.Signal(syscall.SIGTERM) // under load: who waits is answered
		last.EndsWell()
		stop()
		running.Wait()
		sender.close()
		known := stored(t, storetest.Open(t, storeURL).Read)
		for _, key := range accepted {
			if !known[key] {
				t.Errorf("%s was accepted, and is not stored once", key)
			}
		}
	})
}
