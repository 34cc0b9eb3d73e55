package send

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const three = "{\"eventId\":\"e1\"}\n{\"eventId\":\"e2\"}\n{\"eventId\":\"e3\"}"

func TestRunGivesUpWithoutAGateway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	_ = listener.Close() // nobody listens there now
	for _, concurrency := range []int{1, 3} {
		var out, told bytes.Buffer
		start := time.Now()
		summary, err := Run(t.Context(), Config{
			URL: url, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(three), Concurrency: concurrency, Attempts: 3, Out: &out, Notices: &told,
		})
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		want := "send: no answer from " + url + " (connection refused) after 3 attempts; 3 of 3 events were not sent."
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
		if summary.NotSent != 3 || summary.Accepted != 0 || concurrency == 1 && summary.Events != 1 {
			t.Errorf("summary %+v", summary)
		}
		want = "no answer from " + url + " (connection refused); trying again, 2 of 3\nno answer from " + url + " (connection refused); trying again, 3 of 3\n"
		if told.String() != want {
			t.Errorf("told %q, want %q", told.String(), want)
		}
	}
}

// The default attempts at a connection that is refused take less than 10 s.
func TestDefaultAttemptsAreQuick(t *testing.T) {
	t.Parallel()
	var cfg Config
	cfg.complete(1)
	longest := time.Duration(0)
	for attempt := 1; attempt < cfg.Attempts; attempt++ {
		longest += min(firstPause<<(attempt-1), longestPause)
	}
	if longest > 8*time.Second {
		t.Errorf("%d attempts take %s", cfg.Attempts, longest)
	}
}

func TestRunSaysWhatAnInterruptLeft(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	g := newGateway(t, func(n int, w http.ResponseWriter) bool {
		if n == 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
			cancel()
		}
		return n == 2
	})
	summary, err := Run(ctx, Config{URL: g.URL, Secret: secret, Inputs: []string{"-"}, Stdin: strings.NewReader(three)})
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "interrupted: 1 sent, 2 not sent") {
		t.Errorf("error %v", err)
	}
	if summary.Events != 1 || summary.Accepted != 1 || summary.NotSent != 2 {
		t.Errorf("summary %+v", summary)
	}
}

func TestRunHintsAtAWrongSecret(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil)
	for _, tc := range []struct {
		secret string
		hint   bool
	}{{secret, false}, {"another", true}} {
		var told bytes.Buffer
		_, err := Run(t.Context(), Config{URL: g.URL, Secret: tc.secret, Inputs: []string{"-"}, Stdin: strings.NewReader(three), Notices: &told})
		if (err != nil) != tc.hint || strings.Contains(told.String(), "Is HMAC_SECRET the one that the gateway printed?") != tc.hint {
			t.Errorf("%q: error %v, told %q", tc.secret, err, told.String())
		}
	}
}

func TestNoticesTellOfEachTroubleOnce(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	n := &notices{w: &told, gateway: "it"}
	failed := result{problem: "p", attempts: 1}
	n.retry(failed, 3)
	n.retry(failed, 3)
	n.accepted()
	n.retry(failed, 3)
	if want := strings.Repeat("no answer from it (p); trying again, 2 of 3\n", 2); told.String() != want {
		t.Errorf("told %q, want %q", told.String(), want)
	}
}
