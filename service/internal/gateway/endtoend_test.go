package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// pair is a store with a broker on which the gateway has to work.
type pair struct {
	name string
	open func(t *testing.T) (storeURL, brokerURL string)
}

var pairs = []pair{
	{"sqlite in process", func(t *testing.T) (string, string) {
		return "sqlite:" + filepath.Join(t.TempDir(), "waybill.db"), inProcess
	}},
	{"postgres and redis", func(t *testing.T) (string, string) { return testserver.PostgresURL(t), testserver.RedisURL(t) }},
	{"mongodb and redis", func(t *testing.T) (string, string) { return testserver.MongoURL(t), testserver.RedisURL(t) }},
	{"postgres alone", func(t *testing.T) (string, string) {
		address := testserver.PostgresURL(t)
		return address, address
	}},
}

// onEachPair runs a test on each store with its broker.
func onEachPair(t *testing.T, test func(t *testing.T, storeURL, brokerURL string)) {
	onPairs(t, pairs, test)
}

func onPairs(t *testing.T, pairs []pair, test func(t *testing.T, storeURL, brokerURL string)) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			storeURL, brokerURL := p.open(t)
			test(t, storeURL, brokerURL)
		})
	}
}

// site is a gateway that runs, in one process or, where the broker reaches others, in
// two of each part. All that is known of it comes over HTTP.
type site struct {
	*testing.T
	sender *sender
	url    string
	other  *sender // to the other API, if there are two
	stop   func()
}

const siteSecret = "the secret of the site"

// newSite starts one. The intakes are those of its APIs; by default they are as ever.
func newSite(t *testing.T, storeURL, brokerURL string, intakes ...string) *site {
	t.Helper()
	cfg := testConfig(storeURL, siteSecret)
	cfg.BrokerURL, cfg.LeaseTTL = brokerURL, time.Second
	parts := []Parts{All}
	if brokerURL != inProcess {
		parts = []Parts{API, API, Dispatch, Dispatch, Work, Work}
	}
	s := &site{T: t}
	var stops []func()
	for i, part := range parts {
		if cfg.Parts = part; i < len(intakes) {
			cfg.Intake = intakes[i]
		}
		url, stop := serveUntil(t, cfg)
		stops = append(stops, stop)
		switch {
		case i == 0:
			s.url, s.sender = url, newSender(url, siteSecret, 4)
		case part == API:
			s.other = newSender(url, siteSecret, 4)
		}
	}
	s.stop = func() {
		s.sender.close()
		if s.other != nil {
			s.other.close()
		}
		for _, stop := range stops {
			stop()
		}
	}
	t.Cleanup(s.stop)
	return s
}

// send posts an event, which must be accepted, and returns its trace id.
func (s *site) send(body string) (traceID string) {
	s.Helper()
	a, err := s.sender.post(s.Context(), []byte(body))
	if err != nil || a.status != http.StatusAccepted {
		s.Fatalf("%+v, %v; sent %s", a, err, body)
	}
	return a.traceID
}

// call makes a request with the bearer token, and reads a JSON answer into out, if that is not nil.
func (s *site) call(method, path, body string, out any) (status int) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+siteSecret)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.sender.http.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	if out != nil && response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, out); err != nil {
			s.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return response.StatusCode
}

var errNotYet = errors.New("not yet")

// event returns what the gateway tells of a courier's event.
func (s *site) event(id, source string) (e courier.EventStatus, err error) {
	s.Helper()
	var found struct{ Events []courier.EventStatus }
	if status := s.call(http.MethodGet, "/v1/events/"+id+"?source="+source, "", &found); status != http.StatusOK || len(found.Events) != 1 {
		return e, fmt.Errorf("%s of %s: %d with %d events: %w", id, source, status, len(found.Events), errNotYet)
	}
	return found.Events[0], nil
}

// becomes waits for an event to have a status, and returns it.
func (s *site) becomes(id, source string, want courier.Status) (e courier.EventStatus) {
	s.Helper()
	testkit.Eventually(s, patient, func() (err error) {
		if e, err = s.event(id, source); err == nil && e.Status != want {
			err = fmt.Errorf("%s of %s is %s, want %s: %+v", id, source, e.Status, want, e)
		}
		return err
	})
	return e
}

// shipment returns one that must be known.
func (s *site) shipment(id string) (found courier.Shipment) {
	s.Helper()
	if status := s.call(http.MethodGet, "/v1/shipments/"+id, "", &found); status != http.StatusOK {
		s.Fatalf("shipment %s: %d", id, status)
	}
	return found
}

// says is an event of a courier about a shipment, minutes after noon.
func says(source, id string, minutes int, payload string) string {
	return fmt.Sprintf(`{"eventId":%q,"eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:%02d:00Z","source":%q,"idempotencyKey":%q,"payload":%s}`,
		id, minutes, source, source+":"+id, payload)
}

// step is a subtest of what happens on a site, one after the other.
type step struct {
	name string
	run  func(*site)
}

// steps runs them all, and reports whether they passed.
func (s *site) steps(list []step) (passed bool) {
	passed = true
	for _, step := range list {
		passed = s.Run(step.name, func(t *testing.T) {
			of := *s
			of.T = t
			step.run(&of)
		}) && passed
	}
	return passed
}

// The gateway does the same on every store and broker, from the request to the projection, and
// through dead letter, replay and a restart.
func TestEndToEnd(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, storeURL, brokerURL string) {
		s := newSite(t, storeURL, brokerURL)
		if !s.steps([]step{
			{"it is ready", (*site).isReady},
			{"newer by event time wins", (*site).newerWins},
			{"a repeat is the first", (*site).repeatIsTheFirst},
			{"two couriers share an id", (*site).sharedID},
			{"a poisonous event dies and is told of", (*site).poison},
			{"a replay that dies again", (*site).replayDiesAgain},
			{"a discard", (*site).discard},
		}) {
			return
		}
		trace := s.send(says("courier-x", "evt_late", 59, `{"shipmentId":"shp_restart","status":"delivered"}`))
		s.stop()
		s = newSite(t, storeURL, brokerURL)
		s.becomes("evt_late", "courier-x", courier.StatusProcessed)
		if again := s.send(says("courier-x", "evt_late", 59, `{"shipmentId":"shp_restart","status":"delivered"}`)); again != trace {
			t.Errorf("after a restart a repeat has the trace id %s, want %s", again, trace)
		}
		if state := s.shipment("shp_restart").CurrentState; state != "delivered" {
			t.Errorf("after a restart shp_restart is %q", state)
		}
	})
}

func (s *site) isReady() {
	testkit.Eventually(s, soon, func() error {
		if got := s.call(http.MethodGet, "/readyz", "", nil); got != http.StatusOK {
			return fmt.Errorf("readyz: %d", got)
		}
		return nil
	})
}

func (s *site) newerWins() {
	s.send(says("courier-x", "evt_2", 20, `{"shipmentId":"shp_1","orderId":"ord_1","status":"out_for_delivery","van":7}`))
	if e := s.becomes("evt_2", "courier-x", courier.StatusProcessed); e.Outcome != courier.OutcomeApplied || e.AttemptCount != 1 {
		s.Errorf("the first event: %+v", e)
	}
	s.send(says("courier-x", "evt_1", 10, `{"shipmentId":"shp_1","status":"picked_up"}`))
	if e := s.becomes("evt_1", "courier-x", courier.StatusProcessed); e.Outcome != courier.OutcomeLate {
		s.Errorf("the late event: %+v", e)
	}
	s.send(says("courier-x", "evt_3", 30, `{"shipmentId":"shp_1","status":null,"note":"at the door"}`))
	s.becomes("evt_3", "courier-x", courier.StatusProcessed)
	got := s.shipment("shp_1")
	want := courier.Shipment{
		ShipmentID: "shp_1", OrderID: "ord_1", CurrentState: "out_for_delivery", LastEventID: "evt_3", LastEventType: "shipment.status.updated",
		LastEventAt: time.Date(2026, 2, 26, 12, 30, 0, 0, time.UTC), Metadata: json.RawMessage(`{"note":"at the door"}`),
		CreatedAt: got.CreatedAt, UpdatedAt: got.UpdatedAt,
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		s.Errorf("the shipment is %+v, want %+v", got, want)
	}
	if got.CreatedAt.IsZero() || got.UpdatedAt.Before(got.CreatedAt) {
		s.Errorf("it was made at %v and changed at %v", got.CreatedAt, got.UpdatedAt)
	}
	if status := s.call(http.MethodGet, "/v1/shipments/shp_9", "", nil); status != http.StatusNotFound {
		s.Errorf("an unknown shipment: %d", status)
	}
}

func (s *site) repeatIsTheFirst() {
	body := says("courier-x", "evt_4", 40, `{"shipmentId":"shp_2","status":"picked_up"}`)
	first := s.send(body)
	if again := s.send(strings.ReplaceAll(body, ",", " , ")); again != first {
		s.Errorf("a repeat has the trace id %s, want %s", again, first)
	}
	a, err := s.sender.post(s.Context(), []byte(strings.Replace(body, "picked_up", "delivered", 1)))
	if err != nil || a.status != http.StatusConflict {
		s.Errorf("its key with another body: %+v, %v", a, err)
	}
	if e := s.becomes("evt_4", "courier-x", courier.StatusProcessed); e.TraceID != first {
		s.Errorf("the event has the trace id %s, want %s", e.TraceID, first)
	}
}

func (s *site) sharedID() {
	s.send(says("courier-x", "evt_5", 10, `{"shipmentId":"shp_3","status":"picked_up"}`))
	s.send(says("courier-y", "evt_5", 10, `{"shipmentId":"shp_4","status":"delivered"}`))
	s.becomes("evt_5", "courier-x", courier.StatusProcessed)
	s.becomes("evt_5", "courier-y", courier.StatusProcessed)
	var found struct{ Events []courier.EventStatus }
	s.call(http.MethodGet, "/v1/events/evt_5", "", &found)
	if len(found.Events) != 2 {
		s.Errorf("%d events of one id, want those of two couriers", len(found.Events))
	}
}

func (s *site) poison() {
	s.send(says("courier-x", "evt_6", 10, `{"shipmentId":"shp_5","status":"!!"}`))
	s.send(says("courier-x", "evt_7", 20, `{"shipmentId":"shp_5","status":"delivered"}`))
	e := s.becomes("evt_6", "courier-x", courier.StatusDeadLettered)
	if e.AttemptCount != 1 || e.LastErrorCode == nil || *e.LastErrorCode != string(worker.ReasonInvalidStatus) || e.LastErrorMessage == nil {
		s.Errorf("the ledger says %+v", e)
	}
	if d := e.DeadLetter; d == nil || d.ReviewStatus != "pending" || d.ReasonCode != string(worker.ReasonInvalidStatus) || len(d.AttemptHistory) != 1 {
		s.Errorf("the dead letter is %+v", d)
	}
	s.becomes("evt_7", "courier-x", courier.StatusProcessed) // it is not held up
	if len(s.letters("pending")) != 1 {
		s.Errorf("dead letters: %v", s.letters("pending"))
	}
}

// letters lists the dead letters of a status as paths of acts on them.
func (s *site) letters(status string) (paths []string) {
	s.Helper()
	var found struct {
		DeadLetters []struct{ EventID, Consumer string }
	}
	if got := s.call(http.MethodGet, "/v1/dead-letters?status="+status, "", &found); got != http.StatusOK {
		s.Fatalf("dead letters: %d", got)
	}
	for _, d := range found.DeadLetters {
		paths = append(paths, "/v1/dead-letters/"+d.EventID+"/"+d.Consumer)
	}
	return paths
}

func (s *site) replayDiesAgain() {
	open := s.letters("pending")
	if len(open) != 1 {
		s.Fatalf("dead letters: %v", open)
	}
	if got := s.call(http.MethodPost, open[0]+"/replay", `{"note": "once more"}`, nil); got != http.StatusOK {
		s.Fatalf("replay: %d", got)
	}
	testkit.Eventually(s, patient, func() error {
		e, err := s.event("evt_6", "courier-x")
		if err == nil && (e.Status != courier.StatusDeadLettered || e.AttemptCount != 2 || e.DeadLetter == nil ||
			e.DeadLetter.ReviewStatus != "pending" || len(e.DeadLetter.AttemptHistory) != 2) {
			err = fmt.Errorf("after a replay: %+v %+v", e, e.DeadLetter)
		}
		return err
	})
}

func (s *site) discard() {
	open := s.letters("pending")
	if len(open) != 1 {
		s.Fatalf("dead letters: %v", open)
	}
	if got := s.call(http.MethodPost, open[0]+"/discard", `{}`, nil); got != http.StatusBadRequest {
		s.Errorf("a discard without a reason: %d", got)
	}
	if got := s.call(http.MethodPost, open[0]+"/discard", `{"note": "the courier has withdrawn it"}`, nil); got != http.StatusOK {
		s.Fatalf("discard: %d", got)
	}
	e := s.becomes("evt_6", "courier-x", courier.StatusDeadLettered)
	if d := e.DeadLetter; d == nil || d.ReviewStatus != "closed" || d.Resolution != "discarded" {
		s.Errorf("after a discard: %+v", d)
	}
	if got := s.call(http.MethodPost, open[0]+"/replay", `{}`, nil); got != http.StatusConflict {
		s.Errorf("a replay of what is closed: %d", got)
	}
}

// serveUntil runs a gateway in this process until it is stopped, or the test ends.
func serveUntil(t testing.TB, cfg Config) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan Started, 1), make(chan error, 1)
	cfg.Ready = func(s Started) { ready <- s }
	go func() { ended <- Run(ctx, cfg) }()
	select {
	case s := <-ready:
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the gateway stopped with %v", err)
			}
		})
		t.Cleanup(stop)
		return s.URL, stop
	case err := <-ended:
		cancel()
		t.Fatalf("the gateway did not start: %v", err)
		return "", nil
	}
}
