package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// withServers are the pairs whose broker keeps what it has.
var withServers = pairs[1:]

// An intake that publishes what it accepts: what it does not know, the worker finds out.
func TestDirect(t *testing.T) {
	t.Parallel()
	onPairs(t, withServers, func(t *testing.T, storeURL, brokerURL string) {
		s := newSite(t, storeURL, brokerURL, IntakeDirect, IntakeOutbox)
		if !s.steps([]step{
			{"it is ready", (*site).isReady},
			{"newer by event time wins", (*site).newerWins},
			{"a repeat is published", (*site).repeatIsPublished},
			{"another body dies", (*site).otherBodyDies},
			{"the other intake knows it", (*site).otherIntakeKnows},
			{"a poisonous event dies and is told of", (*site).poison},
			{"a replay that dies again", (*site).replayDiesAgain},
			{"a discard", (*site).discard},
		}) {
			return
		}
		applied, err := openView(t, storeURL).applied(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		effects := map[string]int{}
		for _, key := range applied {
			if effects[key]++; effects[key] > 1 {
				t.Errorf("%s has %d effects", key, effects[key])
			}
		}
	})
}

const directBody = `{"shipmentId":"shp_direct","status":"picked_up"}`

func (s *site) repeatIsPublished() {
	body := says("courier-x", "evt_direct", 40, directBody)
	first := s.send(body)
	if again := s.send(strings.ReplaceAll(body, ",", " , ")); again == first {
		s.Errorf("a repeat has the trace id of the first, %s", again)
	}
	e := s.becomes("evt_direct", "courier-x", courier.StatusProcessed)
	if e.Outcome != courier.OutcomeApplied || e.AttemptCount != 1 || e.ShipmentID != "shp_direct" {
		s.Errorf("the ledger says %+v", e)
	}
	s.send(body)
}

func (s *site) otherBodyDies() {
	first, err := s.event("evt_direct", "courier-x")
	if err != nil {
		s.Fatal(err)
	}
	other := says("courier-x", "evt_direct", 50, strings.Replace(directBody, "picked_up", "delivered", 1))
	s.send(other)
	letter := "/v1/dead-letters/" + courier.DirectID("courier-x", "courier-x:evt_direct", courier.CanonicalHash([]byte(other))) + "/" + worker.Consumer
	testkit.Eventually(s, patient, func() error {
		if open := s.letters("pending"); len(open) != 1 || open[0] != letter {
			return fmt.Errorf("dead letters %v, want %s", open, letter)
		}
		return nil
	})
	var found struct {
		DeadLetters []struct{ ReasonCode string }
	}
	if s.call(http.MethodGet, "/v1/dead-letters", "", &found); len(found.DeadLetters) != 1 || found.DeadLetters[0].ReasonCode != string(worker.ReasonIdempotencyConflict) {
		s.Errorf("the dead letters are %+v", found.DeadLetters)
	}
	if e, err := s.event("evt_direct", "courier-x"); err != nil || fmt.Sprint(e) != fmt.Sprint(first) {
		s.Errorf("the ledger says of the first %+v, %v; before: %+v", e, err, first)
	}
	if state := s.shipment("shp_direct").CurrentState; state != "picked_up" {
		s.Errorf("the shipment is %s", state)
	}
	if got := s.call(http.MethodPost, letter+"/discard", `{"note": "the first counts"}`, nil); got != http.StatusOK {
		s.Errorf("discard: %d", got)
	}
}

func (s *site) otherIntakeKnows() {
	first, err := s.event("evt_direct", "courier-x")
	if err != nil {
		s.Fatal(err)
	}
	body := says("courier-x", "evt_direct", 40, directBody)
	if a, err := s.other.post(s.Context(), []byte(body)); err != nil || a.status != http.StatusAccepted || a.traceID != first.TraceID {
		s.Errorf("the repeat: %+v, %v; want the trace id %s", a, err, first.TraceID)
	}
	if a, err := s.other.post(s.Context(), []byte(strings.Replace(body, "picked_up", "delivered", 1))); err != nil || a.status != http.StatusConflict {
		s.Errorf("another body: %+v, %v", a, err)
	}
}

// Of an event that is in the queue twice, by either intake, one is done, and the other dropped, whichever comes
// first. Of two bodies the one that the ledger has is done.
func TestDirectBesideOutbox(t *testing.T) {
	t.Parallel()
	onPairs(t, withServers, func(t *testing.T, storeURL, brokerURL string) {
		cfg := testConfig(storeURL, siteSecret)
		cfg.BrokerURL, cfg.WorkerBatch = brokerURL, 100
		api := func(intake string) *sender {
			cfg := cfg
			cfg.Parts, cfg.Intake = API, intake
			s := newSender(serve(t, cfg), siteSecret, 1)
			t.Cleanup(s.close)
			return s
		}
		direct, outbox := api(IntakeDirect), api(IntakeOutbox)
		post := func(s *sender, body string) {
			t.Helper()
			if a, err := s.post(t.Context(), []byte(body)); err != nil || a.status != http.StatusAccepted {
				t.Fatalf("%+v, %v", a, err)
			}
		}
		first, second := says("courier-x", "evt_a", 10, directBody), says("courier-x", "evt_b", 20, directBody)
		other := strings.Replace(first, "picked_up", "delivered", 1)
		post(direct, first)
		post(direct, other)
		post(outbox, first)
		post(outbox, second)
		v := openView(t, storeURL)
		cfg.Parts = Dispatch
		serve(t, cfg)
		testkit.Eventually(t, patient, func() error { // all but the last are in the queue
			left, err := v.unsettled(t.Context())
			if err == nil && left["pending outbox rows"] > 0 {
				err = fmt.Errorf("left: %v", left)
			}
			return err
		})
		post(direct, second)
		cfg.Parts = Work
		serve(t, cfg)
		var envelopes []string
		for body, key := range map[string]string{first: "courier-x:evt_a", second: "courier-x:evt_b"} {
			envelopes = append(envelopes, courier.EventID("courier-x", key), courier.DirectID("courier-x", key, courier.CanonicalHash([]byte(body))))
		}
		testkit.Eventually(t, patient, func() error {
			for _, envelope := range envelopes {
				if known, err := v.knows(t.Context(), envelope); err != nil || !known {
					return fmt.Errorf("the inbox knows of %s: %t, %w", envelope, known, err)
				}
			}
			return nil
		})
		s := &site{T: t, sender: direct, url: direct.url}
		testkit.Eventually(t, patient, func() error {
			want := "/v1/dead-letters/" + courier.DirectID("courier-x", "courier-x:evt_a", courier.CanonicalHash([]byte(other))) + "/" + worker.Consumer
			if got := s.letters("pending"); len(got) != 1 || got[0] != want {
				return fmt.Errorf("dead letters %v, want %s", got, want)
			}
			return nil
		})
		if applied, err := v.applied(t.Context()); err != nil || len(applied) != 2 || applied[0] == applied[1] {
			t.Errorf("the effects are of %v, %v; want one of each event", applied, err)
		}
	})
}

// While the broker is down, or does not answer, what needs it is refused, and taken in when it is back.
func TestDirectWithoutBroker(t *testing.T) {
	t.Parallel()
	server := testserver.PrivateRedis(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(testserver.PostgresURL(t), siteSecret)
	cfg.BrokerURL, cfg.Intake, cfg.Parts = server.URL(), IntakeDirect, API
	api := serve(t, cfg)
	cfg.Parts = All
	all := serve(t, cfg)
	ready := func(want int) {
		t.Helper()
		for _, url := range []string{api, all} {
			testkit.Eventually(t, patient, func() error {
				if got := status(t, url+"/readyz"); got != want {
					return fmt.Errorf("readyz: %d, want %d", got, want)
				}
				return nil
			})
			if got := status(t, url+"/healthz"); got != http.StatusOK {
				t.Errorf("healthz: %d", got)
			}
		}
	}
	ready(http.StatusServiceUnavailable)
	s := &site{T: t, sender: newSender(api, siteSecret, 1), url: api}
	defer s.sender.close()
	body := says("courier-x", "evt_1", 1, directBody)
	if a, err := s.sender.post(t.Context(), []byte(body)); err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "unavailable") {
		t.Errorf("without a broker: %+v, %v", a, err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(http.StatusOK)
	s.send(body)
	s.becomes("evt_1", "courier-x", courier.StatusProcessed)
}

// Whichever process dies, or the broker, while events come in: each that was accepted is applied or
// dead-lettered in the end, exactly once.
func TestDirectCrash(t *testing.T) {
	t.Parallel()
	binary := buildGateway(t)
	for name, open := range map[string]func(*testing.T) string{"postgres and redis": func(t *testing.T) string { return testserver.PostgresURL(t) },
		"mongodb and redis": func(t *testing.T) string { return testserver.MongoURL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, random := durableRedis(t), testkit.Random(t)
			s := newSplitOf(t, binary, open(t), broker.URL(), IntakeDirect)
			l := startLoad(t, "http://"+s.address, s.secret, 100)
			rounds := 2
			if testkit.Long() {
				rounds = 20
			}
			for range rounds {
				s.killEach(func() time.Duration { return time.Duration(random.Int64N(int64(killWithin))) })
				if err := broker.Kill(); err != nil {
					t.Fatal(err)
				}
				if err := broker.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				l.goesOn(t, time.Second)
			}
			l.stop()
			accountedEventually(t, openView(t, s.storeURL), l.accepted)
			t.Logf("%d events, %d answers 503, %d requests unanswered", len(l.accepted), l.unavailable.Load(), l.unanswered.Load())
		})
	}
}

// A broker that keeps nothing is no place for what is nowhere else.
func TestDirectNeedsABroker(t *testing.T) {
	t.Parallel()
	for _, parts := range []Parts{All, API} {
		cfg := testConfig("sqlite:", siteSecret)
		cfg.Parts, cfg.Intake = parts, IntakeDirect
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "BROKER_URL") {
			t.Errorf("%s in process: %v", parts, err)
		}
		cfg.BrokerURL = "nats://localhost"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "BROKER_URL") {
			t.Errorf("%s with another broker: %v", parts, err)
		}
		cfg.BrokerURL = "redis://localhost"
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", parts, err)
		}
		cfg.Intake = "inbox"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "INTAKE") {
			t.Errorf("%s with another intake: %v", parts, err)
		}
	}
	cfg := testConfig("sqlite:", siteSecret)
	if cfg.Parts = API; cfg.Validate() != nil {
		t.Errorf("the outbox needs no broker: %v", cfg.Validate())
	}
}
