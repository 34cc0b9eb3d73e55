package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/cli"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" { // started by a test that kills it
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		code := cli.RunWaybill(ctx, cli.Program{Args: os.Args, LookupEnv: os.LookupEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		os.Exit(code) //nolint:gocritic // stop is for a process that goes on
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit))
}

const childEnv = "WAYBILL_TEST_CHILD"

const (
	samples = "../../../examples/couriers/samples.ndjson"
	patient = time.Minute
)

// environment is that of a program, with a store of its own.
type environment map[string]string

func newEnvironment(t *testing.T) environment {
	return environment{"STORE_URL": "sqlite:" + filepath.Join(t.TempDir(), "waybill.db"), "HTTP_ADDR": "127.0.0.1:0", "USER": "anna"}
}

// programKey says that the environment is one of waybill, not of gateway.
const programKey = "TEST_PROGRAM"

// application is an environment of waybill, with the database of an application.
func application(t *testing.T, storeURL string) environment {
	t.Helper()
	e := environment{programKey: "waybill", "STORE_URL": storeURL, "USER": "anna"}
	e.ok(t, "migrate", "up")
	return e
}

func sqliteURL(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "app.db")
}

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// ended is how a program ended.
type ended struct {
	code           int
	stdout, stderr string
}

// run runs a program to its end.
func (e environment) run(t *testing.T, args ...string) ended {
	t.Helper()
	return e.start(t.Context(), cli.Program{Args: args})
}

func (e environment) start(ctx context.Context, p cli.Program) ended {
	var stdout, stderr bytes.Buffer
	run, name := cli.Run, "gateway"
	if e[programKey] != "" {
		run, name = cli.RunWaybill, "waybill"
	}
	p.Args = append([]string{"./bin/" + name}, p.Args...)
	p.LookupEnv, p.Stdout, p.Stderr = e.lookup, &stdout, &stderr
	if p.Stdin == nil {
		p.Stdin = strings.NewReader("")
	}
	code := run(ctx, p)
	return ended{code, stdout.String(), stderr.String()}
}

// ok runs a program that must succeed, and returns its standard output.
func (e environment) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := e.run(t, args...)
	if r.code != 0 {
		t.Fatalf("gateway %s: exit code %d: %s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// object runs a program that must print this.
func object[T any](t *testing.T, e environment, args ...string) T {
	t.Helper()
	return decode[T](t, e.ok(t, append(args, "--json")...))
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// told is a writer that says when it was first written to.
type told struct {
	mu    sync.Mutex
	text  strings.Builder
	once  sync.Once
	first chan struct{}
}

func (w *told) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.once.Do(func() { close(w.first) })
	return w.text.Write(b)
}

func (w *told) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// running is a gateway in this process.
type running struct {
	env            environment
	stdout, stderr *told
	stop           func() (exitCode int)
}

// gateway starts one and waits until it serves. It stops with the test, if not
// before.
func (e environment) gateway(t *testing.T, args ...string) *running {
	t.Helper()
	return e.gatewayWith(t, cli.Program{}, args...)
}

// gatewayWith is gateway with more of a program.
func (e environment) gatewayWith(t *testing.T, p cli.Program, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{env: e, stdout: &told{first: make(chan struct{})}, stderr: &told{first: make(chan struct{})}}
	code := make(chan int, 1)
	go func() {
		p.Args = append([]string{"./bin/gateway", "run"}, args...)
		p.LookupEnv, p.Stdin, p.Stdout, p.Stderr = e.lookup, strings.NewReader(""), r.stdout, r.stderr
		code <- cli.Run(ctx, p)
	}()
	r.stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() {
		if code := r.stop(); code != 0 {
			t.Errorf("the gateway ended with exit code %d: %s", code, r.stderr)
		}
	})
	select {
	case <-r.stdout.first:
	case c := <-code:
		code <- c
		t.Fatalf("the gateway ended with exit code %d: %s", c, r.stderr)
	case <-time.After(patient):
		t.Fatalf("the gateway does not serve: %s", r.stderr)
	}
	return r
}

// get asks the gateway.
func get(t *testing.T, url, token string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patient}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// eventually waits until got is as wanted.
func eventually[T any](t *testing.T, got func() T, wanted func(T) bool) (v T) {
	t.Helper()
	testkit.Eventually(t, patient, func() error {
		if v = got(); !wanted(v) {
			return fmt.Errorf("still %+v", v)
		}
		return nil
	})
	return v
}
