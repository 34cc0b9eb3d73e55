package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
	"github.com/waybill-go/waybill/service/internal/worker"
)

func passwordOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

// onEachBroker runs a test on PostgreSQL with each broker that has a server.
func onEachBroker(t *testing.T, test func(t *testing.T, storeURL, brokerURL string)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, testserver.PostgresURL(t), testserver.RedisURL(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		address := testserver.PostgresURL(t)
		test(t, address, address)
	})
}

// openBroker opens a broker until the test ends.
func openBroker(t *testing.T, brokerURL string) *broker {
	t.Helper()
	open, err := parseBroker(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(testConfig("", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.subscriber.Close(), b.close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// listen subscribes to a queue as a stranger would: on Redis with Watermill's own
// subscriber.
func listen(t *testing.T, brokerURL, topic string) <-chan *message.Message {
	t.Helper()
	var s message.Subscriber
	if strings.HasPrefix(brokerURL, "redis") {
		options, err := redis.ParseURL(brokerURL)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		if s, err = redisstream.NewSubscriber(redisstream.SubscriberConfig{Client: client, ConsumerGroup: "stranger"}, watermill.NopLogger{}); err != nil {
			t.Fatal(err)
		}
	} else {
		s = consumerOf{openBroker(t, brokerURL).subscriber}
	}
	t.Cleanup(func() { _ = s.Close() })
	msgs, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// consumerOf subscribes for a consumer of its own.
type consumerOf struct{ message.Subscriber }

func (c consumerOf) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return c.Subscriber.(interface {
		SubscribeConsumer(ctx context.Context, topic, consumer string, window int) (<-chan *message.Message, error)
	}).SubscribeConsumer(ctx, topic, "stranger", 1)
}

// next returns the next message's payload, as an object.
func next(t *testing.T, msgs <-chan *message.Message) (m *message.Message, fields map[string]any) {
	t.Helper()
	select {
	case m = <-msgs:
		m.Ack()
	case <-time.After(soon):
		t.Fatal("no message has come")
	}
	if err := json.Unmarshal(m.Payload, &fields); err != nil {
		t.Fatalf("%v: %s", err, m.Payload)
	}
	return m, fields
}

func TestBrokerAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		inProcess, "redis://localhost", "redis://:hunter2@localhost:6380/3?pool_size=20", "rediss://anna:hunter2@redis.example.com",
		"postgres://anna:hunter2@localhost/waybill?sslmode=verify-full", "postgresql:///waybill",
	} {
		if _, err := parseBroker(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{
		"", "inproc", "localhost:6379", "kafka://anna:hunter2@localhost", "redis://anna:hunter2@localhost/first", "redis://anna:hunter2@localhost?colour=hunter2",
		"redis://anna:hunter2/@localhost", "redis:anna:hunter2@localhost", "postgres://anna:hunter2@localhost:port/waybill", "postgres://anna:hun%ter2@localhost",
	} {
		if _, err := parseBroker(address); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "BROKER_URL") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// What others find in the queues is as documented: events as they were accepted, and what
// became of those that died, also when they die again.
func TestQueues(t *testing.T) {
	t.Parallel()
	onEachBroker(t, func(t *testing.T, storeURL, brokerURL string) {
		cfg := testConfig(storeURL, "secret")
		cfg.BrokerURL = brokerURL
		s := newSender(serve(t, cfg), "secret", 1)
		defer s.close()
		events, dead := listen(t, brokerURL, worker.Queue), listen(t, brokerURL, deadLetterQueue)
		body := `{"eventId":"evt_1","eventType":"` + deadLetterType + `","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x",` +
			`"idempotencyKey":"courier-x:evt_1","payload":{"shipmentId":"shp_1","status":"!!"}}`
		a, err := s.post(t.Context(), []byte(body))
		if err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}

		m, e := next(t, events)
		want := []string{"attempt", "eventId", "eventType", "idempotencyKey", "occurredAt", "payload", "receivedAt", "signatureMeta", "source", "traceId"}
		if !slices.Equal(keysOf(e), want) || e["eventId"] != "evt_1" || e["traceId"] != a.traceID || e["attempt"] != 1.0 {
			t.Errorf("%s has %s", worker.Queue, m.Payload)
		}
		for replays := range 2 {
			m, d := next(t, dead)
			want = []string{
				"attemptCount", "attemptHistory", "deadLetteredAt", "eventId", "idempotencyKey", "payloadSnapshot",
				"terminalReasonCode", "terminalReasonMessage", "traceId",
			}
			history, _ := d["attemptHistory"].([]any)
			if !slices.Equal(keysOf(d), want) || d["eventId"] != "evt_1" || d["idempotencyKey"] != "courier-x:evt_1" || d["traceId"] != a.traceID ||
				d["attemptCount"] != float64(replays+1) || len(history) != replays+1 || d["terminalReasonCode"] != "INVALID_STATUS" ||
				fmt.Sprint(d["payloadSnapshot"]) != "map[shipmentId:shp_1 status:!!]" {
				t.Errorf("%s has %s", deadLetterQueue, m.Payload)
			}
			first, _ := history[0].(map[string]any)
			if first["attempt"] != 1.0 || first["outcome"] != "failed" || first["errorCode"] != "INVALID_STATUS" {
				t.Errorf("%s has the attempt %v", deadLetterQueue, first)
			}
			if replays == 0 {
				letters := eventing.NewDeadLetters(storetest.Open(t, storeURL).Events)
				target := eventing.Target{EventID: m.Metadata.Get("causation_id"), Consumer: worker.Consumer}
				if err := letters.Replay(t.Context(), target, "anna", ""); err != nil {
					t.Fatal(err)
				}
			}
		}

		if err := openBroker(t, brokerURL).publisher.Publish(worker.Queue, message.NewMessage("m1", []byte("nonsense"))); err != nil {
			t.Fatal(err)
		}
		if m, d := next(t, dead); !strings.HasPrefix(fmt.Sprint(d["eventId"]), "undecodable-") || d["terminalReasonCode"] != "ENVELOPE_MALFORMED" {
			t.Errorf("%s has %s", deadLetterQueue, m.Payload)
		}
	})
}

func keysOf(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// While the broker is down, all parts start and go on: events are accepted, and the API is
// ready; dispatcher and worker say that they are not. It comes, and they are, and do what has waited.
func TestBrokerIsDown(t *testing.T) {
	t.Parallel()
	storeURL, server := testserver.PostgresURL(t), testserver.PrivateRedis(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	urls := map[Parts]string{}
	for _, part := range []Parts{API, Dispatch, Work, All} {
		cfg := testConfig(storeURL, "secret")
		cfg.Parts, cfg.BrokerURL = part, server.URL()
		if part == API {
			cfg.BrokerURL = ""
		}
		urls[part] = serve(t, cfg)
	}
	s := newSender(urls[API], "secret", 1)
	defer s.close()
	statuses := func() string {
		var all []string
		for _, part := range []Parts{API, Dispatch, Work, All} {
			all = append(all, fmt.Sprint(part, status(t, urls[part]+"/healthz"), status(t, urls[part]+"/readyz")))
		}
		return strings.Join(all, ", ")
	}
	if got, want := statuses(), "api 200 200, dispatch 200 503, worker 200 503, all 200 200"; got != want {
		t.Errorf("healthz and readyz: %s, want %s", got, want)
	}
	var keys []string
	for i := range int64(20) {
		body, key := event(i, 5, time.Now())
		if a, err := s.post(t.Context(), body); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		keys = append(keys, key)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, soon, func() error {
		if got, want := statuses(), "api 200 200, dispatch 200 200, worker 200 200, all 200 200"; got != want {
			return fmt.Errorf("healthz and readyz: %s, want %s", got, want)
		}
		return nil
	})
	if f := auditEventually(t, storetest.Open(t, storeURL).Read, keys, soon); f.err() != nil {
		t.Error(f.err())
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: soon}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// A broker that hangs does not keep a process from stopping in its time.
func TestStopsWhileTheBrokerHangs(t *testing.T) {
	t.Parallel()
	storeURL := testserver.PostgresURL(t)
	proxy := testkit.StartProxy(t, testserver.RedisURL(t))
	cfg := testConfig(storeURL, "secret")
	cfg.BrokerURL, cfg.ShutdownTimeout = proxy.URL(), 2*time.Second
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ready, ended := make(chan Started, 1), make(chan error, 1)
	cfg.Ready = func(s Started) { ready <- s }
	go func() { ended <- Run(ctx, cfg) }()
	s := newSender((<-ready).URL, "secret", 1)
	defer s.close()
	send := func(i int64) (key string) {
		body, key := event(i, 5, time.Now())
		if a, err := s.post(t.Context(), body); err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		return key
	}
	if f := auditEventually(t, storetest.Open(t, storeURL).Read, []string{send(1)}, soon); f.err() != nil {
		t.Fatal(f.err())
	}
	thaw := proxy.Freeze()
	defer thaw()
	send(2)
	began := time.Now()
	stop()
	select {
	case err := <-ended:
		if took := time.Since(began); err != nil || took > 3*cfg.ShutdownTimeout {
			t.Errorf("it stopped after %v with %v", took, err)
		}
	case <-time.After(patient):
		thaw()
		t.Errorf("it does not stop, but for a server that answers: %v", <-ended)
	}
}
