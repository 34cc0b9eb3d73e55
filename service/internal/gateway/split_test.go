package gateway

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// split is a gateway of three processes. They are restarted, and the broker may be.
type split struct {
	*testing.T
	binary, storeURL, brokerURL string
	address                     string // of the API
	secret, log                 string
	intake                      string // of the API; empty: as ever
	running                     map[string]*process
}

var splitParts = []string{"api", "dispatch", "worker"}

func newSplit(t *testing.T, binary, storeURL, brokerURL string) *split {
	t.Helper()
	return newSplitOf(t, binary, storeURL, brokerURL, "")
}

func newSplitOf(t *testing.T, binary, storeURL, brokerURL, intake string) *split {
	t.Helper()
	s := &split{
		intake: intake,
		T:      t, binary: binary, storeURL: storeURL, brokerURL: brokerURL, secret: newSecret(), log: filepath.Join(t.TempDir(), "log"),
		address: net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t))), running: map[string]*process{},
	}
	t.Cleanup(func() {
		if last := s.running["worker"]; t.Failed() && last != nil {
			t.Logf("the processes said in the end: %s", last.Said()) // all of them: they share a file
		}
	})
	for _, part := range splitParts {
		s.start(part)
	}
	for _, part := range splitParts {
		s.running[part].Await(s.running[part].ready, startWithin)
	}
	return s
}

func (s *split) start(part string) {
	s.Helper()
	cmd := exec.Command(s.binary, part)
	cmd.Env = append(os.Environ(), "STORE_URL="+s.storeURL, "LOG_LEVEL=warn")
	if part == "api" {
		cmd.Env = append(cmd.Env, "HTTP_ADDR="+s.address, "HMAC_SECRET="+s.secret, "ADMIN_TOKEN="+s.secret)
		if s.intake != "" {
			cmd.Env = append(cmd.Env, "INTAKE="+s.intake, "BROKER_URL="+s.brokerURL)
		}
	} else {
		cmd.Env = append(cmd.Env, "HTTP_ADDR=127.0.0.1:0", "BROKER_URL="+s.brokerURL, "LEASE_TTL="+crashLeaseTTL.String(), "RETRY_BACKOFF_BASE_MS=20")
	}
	s.running[part] = start(s.T, cmd, s.log)
}

// killEach kills the parts, one after the other, and starts each again.
func (s *split) killEach(after func() time.Duration) {
	s.Helper()
	for _, part := range splitParts {
		s.running[part].Kill(after())
		s.start(part)
		s.running[part].Await(s.running[part].ready, startWithin)
	}
}

// durableRedis may be killed: synced every second only, it loses what it has acked if a sync is slow just then.
func durableRedis(t *testing.T) *testserver.RedisServer {
	t.Helper()
	return testserver.PrivateRedis(t, "appendfsync always")
}

// Of a gateway of three processes each is killed while events come in, and its broker,
// if it has one of its own: each event that was accepted is done exactly once in the end.
func TestSplitCrash(t *testing.T) {
	t.Parallel()
	binary := buildGateway(t)
	sqlite := func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "waybill.db") }
	postgres := func(t *testing.T) string { return testserver.PostgresURL(t) }
	for _, test := range []struct {
		name  string
		store func(*testing.T) string
		redis bool
	}{{"sqlite and redis", sqlite, true}, {"postgres and redis", postgres, true}, {"postgres alone", postgres, false}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			storeURL := test.store(t)
			brokerURL, restartBroker := storeURL, func() {}
			if test.redis {
				server := durableRedis(t)
				brokerURL = server.URL()
				restartBroker = func() {
					if err := server.Kill(); err != nil {
						t.Fatal(err)
					}
					if err := server.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			splitCrash(t, newSplit(t, binary, storeURL, brokerURL), restartBroker)
		})
	}
}

func splitCrash(t *testing.T, s *split, restartBroker func()) {
	rounds := 2
	if testkit.Long() {
		rounds = 20
	}
	random := testkit.Random(t)
	c := startCouriers(t, newSender("http://"+s.address, s.secret, courierCount), 0)
	for range rounds {
		s.killEach(func() time.Duration { return time.Duration(random.Int64N(int64(killWithin))) })
		restartBroker()
	}
	accepted := c.stop()
	db := storetest.Open(t, s.storeURL).Read
	if f := auditEventually(t, db, accepted, patient); f.err() != nil {
		t.Fatalf("%v\nthe gateway: %s", f.err(), s.running["worker"].Said())
	}
	for _, part := range splitParts {
		s.running[part].Signal(syscall.SIGTERM)
		s.running[part].EndsWell()
	}
	t.Logf("%d events, %d requests unanswered", len(accepted), c.unanswered.Load())
	if c.unanswered.Load() == 0 {
		t.Error("no kill hit anything: this proves nothing")
	}
	said, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{s.storeURL, s.brokerURL} {
		if password := passwordOf(t, address); password != "" && strings.Contains(string(said), password) {
			t.Errorf("the log tells the password of %s", address)
		}
	}
}
