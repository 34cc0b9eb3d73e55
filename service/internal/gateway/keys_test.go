package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/credentials"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// record is a log that a test reads while it is written.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *record) says(t *testing.T, text string) {
	t.Helper()
	testkit.Eventually(t, soon, func() error {
		if !strings.Contains(r.String(), text) {
			return fmt.Errorf("the log does not say %q: %s", text, r)
		}
		return nil
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	oldX, newX, nextX = "hunter2 of courier-x, the old", "hunter2 of courier-x, the new", "hunter2 of courier-x, the next"
	secretY, every    = "hunter2 of courier-y", "hunter2 of everybody"
)

// secretsOfX are those of courier-x, one expired, one that holds and one that does not yet, of courier-y, and
// one for all.
func secretsOfX(at time.Time) string {
	return fmt.Sprintf(`
- {key: x-old, source: courier-x, secret: %q, not_after: %s}
- {key: x-new, source: courier-x, secret: %q}
- {key: x-next, source: courier-x, secret: %q, not_before: %s}
- {source: courier-y, secret_env: SECRET_Y}
- {key: all, secret: %q}
`, oldX, at.Add(-time.Hour).Format(time.RFC3339), newX, nextX, at.Add(time.Hour).Format(time.RFC3339), every)
}

// withSecretsFile starts a gateway on such a file.
func withSecretsFile(t *testing.T) (url, path string, hangup chan<- os.Signal, log *record) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "secrets.yaml")
	write(t, path, secretsOfX(time.Now()))
	cfg := testConfig("sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), "the admin token")
	cfg.HMACSecret, cfg.HMACSecretsFile = "", path
	cfg.LookupEnv = func(name string) (string, bool) { return secretY, name == "SECRET_Y" }
	signals := make(chan os.Signal)
	log = &record{}
	cfg.Hangup, cfg.Logger = signals, slog.New(slog.NewTextHandler(log, nil))
	return serve(t, cfg), path, signals, log
}

// posted is the answer to an event of a source that is signed so.
func posted(t *testing.T, url, source, secret, keyID string) answer {
	t.Helper()
	s := newSender(url, secret, 1)
	defer s.close()
	s.keyID = keyID
	body, _ := event(1, 1, time.Now())
	a, err := s.post(t.Context(), bytes.ReplaceAll(body, []byte("courier-x"), []byte(source)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A secret that can be guessed is told of, but not what it is.
func TestShortSecrets(t *testing.T) {
	t.Parallel()
	for secret, warnings := range map[string]int{"hunter2": 2, "hunter2 hunter2 hunter2": 0} {
		log := &record{}
		cfg := testConfig("sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), secret)
		cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
		serve(t, cfg)
		if text := log.String(); strings.Count(text, "can be guessed") != warnings || strings.Contains(text, secret) {
			t.Errorf("%q: not %d warnings: %s", secret, warnings, text)
		}
	}
}

// Nobody signs for a source but with a secret of it that holds now, whether the key id is given or not.
func TestSecretsOfSources(t *testing.T) {
	t.Parallel()
	url, _, _, log := withSecretsFile(t)
	const ok, refused = http.StatusConflict, http.StatusUnauthorized // one event with several times: a conflict is past the signature
	if a := posted(t, url, "courier-x", newX, ""); a.status != http.StatusAccepted {
		t.Fatalf("%d: %s", a.status, a.body)
	}
	if a := posted(t, url, "courier-y", secretY, ""); a.status != http.StatusAccepted {
		t.Fatalf("%d: %s", a.status, a.body)
	}
	for _, test := range []struct {
		name, source, secret, keyID string
		want                        int
		says                        string
	}{
		{"with its key id", "courier-x", newX, "x-new", ok, ""},
		{"for everybody", "courier-x", every, "", ok, ""},
		{"for everybody, with its key id", "courier-y", every, "all", ok, ""},
		{"without a key id", "courier-y", secretY, "", ok, ""},
		{"expired", "courier-x", oldX, "", refused, "does not match"},
		{"expired, with its key id", "courier-x", oldX, "x-old", refused, "names no secret that is valid now"},
		{"not yet valid", "courier-x", nextX, "", refused, "does not match"},
		{"not yet valid, with its key id", "courier-x", nextX, "x-next", refused, "names no secret that is valid now"},
		{"another source's", "courier-x", secretY, "", refused, "may not sign for this source"},
		{"the other way round", "courier-y", newX, "", refused, "may not sign for this source"},
		{"another source's, with its key id", "courier-y", newX, "x-new", refused, "may not sign for this source"},
		{"another's key id", "courier-y", secretY, "x-new", refused, "does not match"},
		{"unknown key id", "courier-x", newX, "x-9", refused, "names no secret that is valid now"},
		{"unknown secret", "courier-x", "hunter2 of nobody", "", refused, "does not match"},
		{"unknown source", "courier-z", newX, "", refused, "may not sign for this source"},
	} {
		if a := posted(t, url, test.source, test.secret, test.keyID); a.status != test.want || !strings.Contains(a.body, test.says) {
			t.Errorf("%s: %d, want %d and %q: %s", test.name, a.status, test.want, test.says, a.body)
		}
	}
	log.says(t, `secret \"x-old\" of source \"courier-x\" has expired`)
	log.says(t, `secret \"all\" has no source: it may sign for every source`)
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log tells a secret: %s", log)
	}
}

// A rotation by SIGHUP takes effect at once; a faulty file changes nothing.
func TestSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	url, path, hangup, log := withSecretsFile(t)
	write(t, path, fmt.Sprintf("- {key: x-9, source: courier-x, secret: %q}\n- {key: x-9, source: courier-x, sekret: %q}\n", nextX, every))
	hangup <- syscall.SIGHUP
	log.says(t, "file of secrets refused; what was read before stays")
	log.says(t, path+":2:9: this key is there twice")
	if a := posted(t, url, "courier-x", newX, "x-new"); a.status != http.StatusAccepted {
		t.Errorf("after a faulty file: %d: %s", a.status, a.body)
	}
	if a := posted(t, url, "courier-x", nextX, ""); a.status != http.StatusUnauthorized {
		t.Errorf("of a faulty file: %d: %s", a.status, a.body)
	}

	write(t, path, fmt.Sprintf("- {key: x-9, source: courier-x, secret: %q}\n", nextX))
	hangup <- syscall.SIGHUP
	testkit.Eventually(t, soon, func() error {
		if a := posted(t, url, "courier-x", nextX, "x-9"); a.status == http.StatusUnauthorized {
			return fmt.Errorf("%d: %s", a.status, a.body)
		}
		return nil
	})
	if a := posted(t, url, "courier-x", newX, ""); a.status != http.StatusUnauthorized {
		t.Errorf("what was taken out: %d: %s", a.status, a.body)
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log tells a secret: %s", log)
	}
}

// What died is replayed over HTTP by whoever may, and recorded under the token's name.
func TestActsOverHTTP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "tokens.yaml")
	const anna, grafana = "hunter2 of anna", "hunter2 of grafana"
	tokens := func(scopes string) string {
		return fmt.Sprintf("- {name: anna, token: %q, scopes: %s}\n- {name: grafana, token: %q, scopes: [read]}\n",
			credentials.HashToken(anna), scopes, credentials.HashToken(grafana))
	}
	write(t, path, tokens("[read, operate]"))
	cfg := testConfig("sqlite:"+filepath.Join(dir, "waybill.db"), "the secret")
	cfg.AdminToken, cfg.AdminTokensFile = "", path
	signals, log := make(chan os.Signal), &record{}
	cfg.Hangup, cfg.Logger = signals, slog.New(slog.NewTextHandler(log, nil))
	url := serve(t, cfg)
	ask := func(method, path, token, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}

	s := newSender(url, "the secret", 1)
	defer s.close()
	body, _ := event(1, 1, time.Now())
	if a, err := s.post(t.Context(), bytes.ReplaceAll(body, []byte("out_for_delivery"), []byte("¿what?"))); err != nil || a.status != http.StatusAccepted {
		t.Fatal(a, err)
	}
	var page struct {
		DeadLetters []struct{ EventID, Consumer, Status string }
	}
	testkit.Eventually(t, soon, func() error {
		status, text := ask(http.MethodGet, "/v1/dead-letters?status=pending", grafana, "")
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK || len(page.DeadLetters) != 1 {
			return fmt.Errorf("%d: %s", status, text)
		}
		return nil
	})
	dead := page.DeadLetters[0]
	to := "/v1/dead-letters/" + dead.EventID + "/" + dead.Consumer
	if status, text := ask(http.MethodPost, to+"/discard", grafana, `{"note": "no use"}`); status != http.StatusForbidden {
		t.Errorf("without the scope: %d: %s", status, text)
	}
	if status, text := ask(http.MethodPost, to+"/replay", anna, `{"note": "again"}`); status != http.StatusOK {
		t.Errorf("replay: %d: %s", status, text)
	}
	store := storetest.Open(t, cfg.StoreURL)
	testkit.Eventually(t, soon, func() error { // it has died once more
		found, err := eventing.NewDeadLetters(store.Events).List(t.Context(), eventing.DeadLetterFilter{Status: eventing.StatusPending})
		if err != nil || len(found) != 1 || len(found[0].Acts) == 0 || found[0].Acts[0].By != "anna" || found[0].Acts[0].Note != "again" {
			return fmt.Errorf("%+v: %w", found, err)
		}
		return nil
	})

	write(t, path, tokens("[read]"))
	signals <- syscall.SIGHUP
	testkit.Eventually(t, soon, func() error {
		if status, text := ask(http.MethodPost, to+"/review", anna, ""); status != http.StatusForbidden {
			return fmt.Errorf("%d: %s", status, text)
		}
		return nil
	})
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log tells a token: %s", log)
	}
}
