package redisbroker_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// features of redisbroker; those that are off say why.
func features(window int) tests.Features {
	return tests.Features{
		ConsumerGroups:                      true,
		ExactlyOnceDelivery:                 false,       // what is not acked is delivered again
		GuaranteedOrder:                     false,       // subscribers of a group share the messages
		GuaranteedOrderWithSingleSubscriber: window == 1, // else several are handled at a time
		Persistent:                          true,
		RequireSingleInstance:               false, // the server is what instances share
		NewSubscriberReceivesOldMessages:    true,
		RestartServiceCommand:               nil,   // TestWatermillReconnect has one
		GenerateTopicFunc:                   nil,   // any name will do
		GenerateIDFunc:                      nil,   // as will any ID
		ForceShort:                          false, // it is fast enough
		ContextPreserved:                    false, // a message comes over the network
	}
}

// windows are those with which the suite is run.
var windows = map[string]int{"window 1": 1, "window 64": 64}

// constructors makes those that the suite wants.
func constructors(redisURL string, cfg redisbroker.SubscriberConfig) (tests.PubSubConstructor, tests.ConsumerGroupPubSubConstructor) {
	cfg.NackDelay, cfg.ClaimAfter = time.Millisecond, 5*time.Second
	cfg.CloseTimeout = 100 * time.Millisecond // the suite leaves messages without an ack
	inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		client := newClient(t, redisURL)
		cfg := cfg
		cfg.Group = group
		s, err := redisbroker.NewSubscriber(client, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return newPublisher(t, client, redisbroker.PublisherConfig{}), s
	}
	return func(t *testing.T) (message.Publisher, message.Subscriber) { return inGroup(t, watermill.NewUUID()) }, inGroup
}

// TestWatermillSuite is Watermill's own, but for what TestWatermillReconnect runs.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	redisURL := testserver.RedisURL(t)
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			single, inGroup := constructors(redisURL, redisbroker.SubscriberConfig{Window: window})
			tests.TestPubSub(t, features(window), single, inGroup)
		})
	}
}

// TestWatermillReconnect is the suite's test that restarts the server. It has a race of
// its own, between who notes what is published and who compares. So it runs in a process
// without the race detector, and its last message comes late.
func TestWatermillReconnect(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs Redis; run without -short")
	}
	if os.Getenv(unracedEnv) == "" {
		binary := filepath.Join(t.TempDir(), "unraced")
		if out, err := exec.Command("go", "test", "-c", "-race=false", "-o", binary, ".").CombinedOutput(); err != nil {
			t.Fatalf("build the tests: %v: %s", err, out)
		}
		cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout=5m")
		cmd.Env = append(os.Environ(), unracedEnv+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || bytes.Count(out, []byte("    --- PASS: "+t.Name())) != len(windows) {
			t.Errorf("%v: %s", err, out[max(0, len(out)-4096):])
		}
		return
	}
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.PrivateRedis(t, "enable-debug-command local")
			features := features(window)
			features.RestartServiceCommand = append([]string{"env"}, asProgram(t, restartEnv, server.URL())...)
			single, _ := constructors(server.URL(), redisbroker.SubscriberConfig{Window: window, Unmarshaller: &lastLate{}})
			tests.TestReconnect(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, single)
		})
	}
}

// lastLate has the last message of the suite's test wait.
type lastLate struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (l *lastLate) Unmarshal(values map[string]any) (*message.Message, error) {
	m, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(values)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[m.UUID] = true
	const all = 10_000
	if len(l.seen) == all {
		<-time.After(time.Second)
	}
	return m, nil
}

// TestWatermillStress runs the suite's tests many at a time: ten in the long form, which
// takes minutes; in the short form two, with fewer messages.
func TestWatermillStress(t *testing.T) {
	with := features(64)
	if !testkit.Long() {
		t.Setenv("STRESS_TEST_COUNT", "2")
		with.ForceShort = true
	}
	single, inGroup := constructors(testserver.RedisURL(t), redisbroker.SubscriberConfig{})
	tests.TestPubSubStressTest(t, with, single, inGroup)
}

// asProgram returns the setting and the command that run this test binary as another
// program.
func asProgram(t *testing.T, env, redisURL string) []string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(redisURL), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{env + "=" + file, binary}
}

// restart has a server restart in order, and returns when it is back.
func restart(redisURL string) error {
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer client.Close()
	id := func() (string, error) {
		info, err := client.InfoMap(context.Background(), "server").Result()
		if err != nil {
			return "", err
		}
		return info["Server"]["run_id"], nil
	}
	before, err := id()
	if err != nil {
		return err
	}
	_ = client.Do(context.Background(), "debug", "restart").Err() // the connection ends
	for deadline := time.After(30 * time.Second); ; {
		if after, err := id(); err == nil && after != before {
			return nil
		}
		select {
		case <-deadline:
			return errors.New("the server has not come back")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
