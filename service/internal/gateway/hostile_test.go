package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
)

// lone is a gateway in a process of its own, on a SQLite file.
type lone struct {
	*testing.T
	address, secret string
	process         *process
	events          *atomic.Int64
}

func newLone(t *testing.T) *lone {
	t.Helper()
	g := &lone{T: t, address: net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t))), secret: newSecret(), events: &atomic.Int64{}}
	cmd := exec.Command(buildGateway(t), "run")
	cmd.Env = append(os.Environ(), "STORE_URL=sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), "HTTP_ADDR="+g.address,
		"HMAC_SECRET="+g.secret, "ADMIN_TOKEN="+g.secret, "LOG_LEVEL=error")
	g.process = start(t, cmd, filepath.Join(t.TempDir(), "log"))
	g.process.Await(g.process.ready, startWithin)
	return g
}

// of is the same gateway for a subtest.
func (g *lone) of(t *testing.T) *lone {
	sub := *g
	sub.T = t
	return &sub
}

func (g *lone) dial() net.Conn {
	g.Helper()
	c, err := (&net.Dialer{}).DialContext(g.Context(), "tcp", g.address)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = c.Close() })
	return c
}

// serves checks that events of others are accepted, each within a second or so.
func (g *lone) serves() {
	g.Helper()
	s := newSender("http://"+g.address, g.secret, 1)
	defer s.close()
	var slowest time.Duration
	for range 20 {
		body, _ := event(g.events.Add(1), 1, time.Now())
		began := time.Now()
		if a, err := s.post(g.Context(), body); err != nil || a.status != http.StatusAccepted {
			g.Errorf("somebody else's event: %+v, %v", a, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	if slowest > 5*time.Second { // it takes milliseconds, on a machine that is not busy
		g.Errorf("somebody else's event took %v", slowest)
	}
}

// answered reads all that the server says until it closes the connection, which it must within the time.
func answered(c net.Conn, within time.Duration) (said string, took time.Duration, err error) {
	began := time.Now()
	if err := c.SetReadDeadline(began.Add(within)); err != nil {
		return "", 0, err
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil // it was reset, which is a way to close it
	}
	return string(b), time.Since(began), err
}

// Clients that send their headers, or their body, a byte at a time are cut off in time, and disturb nobody.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	g := newLone(t)
	timestamp, signature := courier.Sign([]byte(g.secret), []byte("{}"), time.Now())
	head := "POST /v1/events/courier HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
		courier.HeaderTimestamp + ": " + timestamp + "\r\n" + courier.HeaderSignature + ": " + signature + "\r\n"
	for name, test := range map[string]struct {
		first string
		next  func(i int) string
		want  string // of the answer, if there is one
		least time.Duration
		most  time.Duration
	}{
		"headers":       {head, func(i int) string { return fmt.Sprintf("X-%d: y\r\n", i) }, "", 3 * time.Second, 12 * time.Second},
		"request line":  {"GE", func(int) string { return "T" }, "", 3 * time.Second, 12 * time.Second},
		"body":          {head + "Content-Length: 100000\r\n\r\n{", func(int) string { return " " }, "408 Request Timeout", 10 * time.Second, 25 * time.Second},
		"chunked body":  {head + "Transfer-Encoding: chunked\r\n\r\n", func(int) string { return "1\r\n \r\n" }, "408 Request Timeout", 10 * time.Second, 25 * time.Second},
		"says nothing":  {"", nil, "", 3 * time.Second, 12 * time.Second},
		"only newlines": {"", func(int) string { return "\r\n" }, "", 0, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := g.of(t)
			const clients = 100
			var all sync.WaitGroup
			for range clients {
				c := g.dial()
				all.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					var dripping sync.WaitGroup
					dripping.Go(func() { drip(ctx, c, test.first, test.next) })
					said, took, err := answered(c, test.most)
					cancel()
					dripping.Wait()
					if err != nil || took < test.least || !strings.Contains(said, test.want) || strings.Contains(said, " 202 ") {
						t.Errorf("after %v: %q, %v", took, said, err)
					}
				})
			}
			g.serves()
			all.Wait()
			g.process.Alive()
		})
	}
}

// drip writes a little every half second.
func drip(ctx context.Context, w io.Writer, first string, next func(i int) string) {
	if _, err := io.WriteString(w, first); err != nil || next == nil {
		return
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := io.WriteString(w, next(i)); err != nil {
			return
		}
	}
}

// Ten thousand connections that do nothing disturb nobody, and are closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	g := newLone(t)
	const connections = 10_000
	conns := make([]net.Conn, connections)
	for i := range conns {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns[i] = c
	}
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
	})
	g.serves()
	for i, c := range conns {
		if said, took, err := answered(c, 30*time.Second); err != nil || said != "" {
			t.Fatalf("connection %d after %v: %q, %v", i, took, said, err)
		}
	}
	g.process.Alive()
	g.serves()
}

// What is no HTTP, or says two things at once, is refused, and the server goes on.
func TestMalformedHTTP(t *testing.T) {
	t.Parallel()
	g := newLone(t)
	post := "POST /v1/events/courier HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, request := range map[string]string{
		"garbage":                    "\x00\x01\x02\x03\r\n\r\n",
		"TLS":                        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("x", 200) + "\r\n\r\n",
		"HTTP/2 preface":             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/0.9":                   "GET /readyz\r\n\r\n",
		"HTTP/9.9":                   "GET /readyz HTTP/9.9\r\nHost: x\r\n\r\n",
		"no host":                    "GET /readyz HTTP/1.1\r\n\r\n",
		"two hosts":                  "GET /readyz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"a method of no letters":     "@@@ / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a header without a name":    "GET /readyz HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n",
		"a space in a name":          "GET /readyz HTTP/1.1\r\nHost: x\r\nX Y: z\r\n\r\n",
		"a NUL in a value":           "GET /readyz HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
		"headers that are too large": "GET /readyz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n",
		"too many headers":           "GET /readyz HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 10_000) + "\r\n",
		"a path that is too long":    "GET /" + strings.Repeat("y", 64<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"a broken escape":            "GET /v1/events/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"two lengths":                post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a negative length":          post + "Content-Length: -1\r\n\r\n{}",
		"a length that is no number": post + "Content-Length: 2, 2x\r\n\r\n{}",
		"a huge length":              post + "Content-Length: 99999999999999999999\r\n\r\n{}",
		"a length and chunks":        post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an unknown encoding":        post + "Transfer-Encoding: gzip\r\n\r\n{}",
		"a chunk of no number":       post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
		"a chunk that is too long":   post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n",
		"an endless chunk extension": post + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("x", 64<<10) + "\r\n{}\r\n0\r\n\r\n",
		"a body that ends early":     post + "Content-Length: 10\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := g.of(t).dial().(*net.TCPConn)
			sent := make(chan struct{})
			go func() { // it may be cut off before it has sent all
				defer close(sent)
				_, _ = io.WriteString(c, request)
				_ = c.CloseWrite()
			}()
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			_ = c.Close()
			<-sent
			if err != nil {
				return // the connection was closed
			}
			defer r.Body.Close()
			if r.StatusCode < 400 || r.StatusCode >= 500 && r.StatusCode != http.StatusNotImplemented && r.StatusCode != http.StatusHTTPVersionNotSupported {
				t.Errorf("answered %d", r.StatusCode)
			}
		})
	}
	t.Cleanup(func() {
		g.process.Alive()
		if said := g.process.Said(); strings.Contains(said, "panic") {
			t.Errorf("the gateway says %s", said)
		}
	})
}
