package send

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
)

const (
	requestTimeout = 30 * time.Second
	dialTimeout    = 5 * time.Second
	maxAnswer      = 64 << 10 // bytes of an answer that are read
	firstPause     = 200 * time.Millisecond
	longestPause   = 5 * time.Second
	// longestRetryAfter is how far a gateway can put us off.
	longestRetryAfter = 30 * time.Second
)

// result is what became of an event.
type result struct {
	item
	status   int // 0: no answer
	traceID  string
	problem  string // empty: accepted
	attempts int
	latency  time.Duration // from the first try to the last answer
	spent    bool          // all attempts, and trying again might still have helped
	cut      bool          // the sending ended before there was a final answer
}

func (r result) accepted() bool { return r.status/100 == 2 }

type client struct {
	http     *http.Client
	target   string
	secret   []byte
	keyID    string
	attempts int
	wait     func(context.Context, time.Duration) error
	notices  *notices
}

func newHTTPClient(connections int) *http.Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		MaxIdleConnsPerHost: connections,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
	return &http.Client{
		Transport: transport,
		Timeout:   requestTimeout,
		// A redirect would need a signature for somebody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// send posts the event until there is an answer that trying again cannot
// change. That is safe: a repeat changes nothing at the gateway.
func (c *client) send(ctx context.Context, it item) result {
	res := result{item: it}
	start := time.Now()
	for {
		res.attempts++
		retryAfter, again := c.post(ctx, &res)
		res.cut = again && ctx.Err() != nil
		res.spent = again && !res.cut && res.attempts >= c.attempts
		if !again || res.cut || res.spent {
			break
		}
		c.notices.retry(res, c.attempts)
		if c.wait(ctx, max(pause(res.attempts), retryAfter)) != nil {
			res.cut = true
			break
		}
	}
	if res.accepted() {
		c.notices.accepted()
	}
	res.latency = time.Since(start)
	return res
}

// pause grows from 0.2 s to 5 s, less up to a half of it, so that many clients
// do not come back together.
func pause(attempt int) time.Duration {
	d := longestPause
	if attempt < 6 {
		d = min(firstPause<<(attempt-1), longestPause)
	}
	return d - rand.N(d/2+1) //nolint:gosec // spreads load, keeps no secret
}

// post tries once, signed anew: a signature ages.
func (c *client) post(ctx context.Context, res *result) (retryAfter time.Duration, again bool) {
	res.status, res.traceID, res.problem = 0, "", ""
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.target, bytes.NewReader(res.raw))
	if err != nil {
		res.problem = err.Error()
		return 0, false
	}
	timestamp, signature := courier.Sign(c.secret, res.raw, time.Now())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(courier.HeaderTimestamp, timestamp)
	req.Header.Set(courier.HeaderSignature, signature)
	if c.keyID != "" {
		req.Header.Set(courier.HeaderKeyID, c.keyID)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		res.problem = cause(err)
		return 0, true
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		res.problem = fmt.Sprintf("read the answer: %v", err)
		return 0, true
	}
	res.status = answer.StatusCode
	res.traceID, res.problem = decodeAnswer(answer.StatusCode, body)
	switch answer.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return parseRetryAfter(answer.Header.Get("Retry-After"), time.Now()), true
	}
	return 0, false
}

// cause says in a few words why there was no answer.
func cause(err error) string {
	var call *url.Error
	var errno syscall.Errno
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &call) && call.Timeout():
		return "timed out"
	case call != nil:
		return call.Err.Error()
	}
	return err.Error()
}

func decodeAnswer(status int, body []byte) (traceID, problem string) {
	var answer struct{ TraceID, Title, Detail string }
	_ = json.Unmarshal(body, &answer) // an answer of another server says nothing, and is told by its status
	if status/100 == 2 {
		return answer.TraceID, ""
	}
	for _, problem := range []string{answer.Detail, answer.Title, http.StatusText(status)} {
		if problem != "" {
			return answer.TraceID, problem
		}
	}
	return answer.TraceID, "no reason given"
}

// parseRetryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func parseRetryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, longestRetryAfter)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), longestRetryAfter)
	}
	return 0
}
