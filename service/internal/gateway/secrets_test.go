package gateway

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testserver"
)

// Whatever happens, and whatever is asked for, at the most talkative level: no secret is in a log, an answer, an error, a
// metric or what the commands print.
func TestSecretsAreNotTold(t *testing.T) {
	t.Parallel()
	binary, store, broker := buildGateway(t), testserver.PrivatePostgres(t), testserver.PrivateRedis(t)
	dir := t.TempDir()
	log, file := filepath.Join(dir, "log"), filepath.Join(dir, "secrets.yaml")
	const ofX, admin, operator = "hunter2-of-courier-x", "hunter2-of-the-admin", "hunter2-of-an-operator"
	write(t, file, fmt.Sprintf("- {key: x-1, source: courier-x, secret: %q}\n", ofX))
	tokens := filepath.Join(dir, "tokens.yaml")
	write(t, tokens, fmt.Sprintf("- {name: anna, token: %q, scopes: [read]}\n", operator))
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t)))
	base := "http://" + address
	environment := append(os.Environ(), "STORE_URL="+store.URL(), "BROKER_URL="+broker.URL(), "HMAC_SECRETS_FILE="+file, "ADMIN_TOKEN="+admin,
		"ADMIN_TOKENS_FILE="+tokens, "LOG_LEVEL=debug", "LOG_FORMAT=json", "LEASE_TTL=1s", "HTTP_ADDR="+address)
	var said strings.Builder // all that anybody got to see
	cmd := exec.Command(binary, "run")
	cmd.Env = environment
	p := start(t, cmd, log)
	p.Await(p.ready, startWithin)

	s := newSender(base, ofX, 1)
	defer s.close()
	tell := func(a answer, err error) { fmt.Fprintln(&said, a, err) }
	good, _ := event(1, 1, time.Now())
	tell(s.post(t.Context(), good))
	bad, _ := event(2, 1, time.Now())
	tell(s.post(t.Context(), []byte(strings.Replace(string(bad), "out_for_delivery", "?", 1))))
	tell(s.post(t.Context(), []byte(strings.ReplaceAll(string(bad), "courier-x", "courier-y"))))
	tell(s.post(t.Context(), []byte("{")))
	s.keyID = ofX // mistaken for the key id
	tell(s.post(t.Context(), good))
	s.keyID = "x-1"
	get := func(path, token string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := s.http.Do(r)
		if err != nil {
			fmt.Fprintln(&said, err)
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		fmt.Fprintln(&said, response.StatusCode, response.Header, string(text))
	}
	for _, token := range []string{admin, operator, ofX, ""} {
		for _, path := range []string{"/v1/events/evt_1", "/v1/dead-letters", "/v1/shipments/shp_1", "/metrics", "/openapi.json", "/readyz", "/" + url.PathEscape(ofX)} {
			get(path, token)
		}
	}
	command := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = environment
		text, err := cmd.CombinedOutput()
		fmt.Fprintln(&said, args[0], err, string(text))
	}
	for _, args := range [][]string{
		{"config"}, {"config", "--json"}, {"audit"}, {"dlq", "list"}, {"outbox", "stats"}, {"migrate", "status"}, {"run", "--help"},
		{"run", "--http-addr", "nonsense"}, {"worker", "--broker-url", broker.URL() + "/x?y"}, {"audit", "--store-url", store.URL() + "x"},
		{"run", "--hmac-secret", ofX, "--log-level", "nonsense"}, {"config", "--hmac-secret", ofX}, {"config", "--admin-token", admin},
	} {
		command(args...)
	}

	// Servers that go, and passwords that are wrong.
	for _, gone := range []server{broker, store} {
		if err := gone.Stop(); err != nil {
			t.Fatal(err)
		}
		tell(s.post(t.Context(), good))
		get("/readyz", admin)
		get("/v1/events/evt_1", admin)
		command("audit")
		if err := gone.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.Signal(syscall.SIGTERM)
	p.EndsWell()
	wrong := func(address string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(u.User.Username(), "hunter2 of nobody")
		return u.String()
	}
	command("audit", "--store-url", wrong(store.URL()))
	command("worker", "--store-url", wrong(store.URL()), "--broker-url", wrong(broker.URL()))

	logged, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	said.Write(logged)
	all := said.String()
	for _, expected := range []string{`"level":"DEBUG"`, "invalid-signature", "connection refused", "password authentication failed"} {
		if !strings.Contains(all, expected) {
			t.Errorf("nothing said %q: this proves nothing", expected)
		}
	}
	for _, secret := range []string{"hunter2", passwordOf(t, store.URL()), passwordOf(t, broker.URL())} {
		if at := strings.Index(all, secret); at >= 0 {
			t.Errorf("a secret is told: %s", all[max(0, at-300):min(len(all), at+100)])
		}
	}
}
