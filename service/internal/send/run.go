package send

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

const (
	intakePath = "/v1/events/courier"
	// loadConcurrency is the default where --count asks for more than the input.
	loadConcurrency = 16
	maxConcurrency  = 1024
	maxCount        = 10_000_000
)

// Config says what to send, and how.
type Config struct {
	// URL is the gateway's, such as http://127.0.0.1:8080. Without a path, that
	// of the intake is added.
	URL string
	// Secret signs every request. Required.
	Secret string
	// KeyID names the secret to the gateway. Default: it has to find out.
	KeyID string
	// Inputs are files (a JSON object, an array of them, or NDJSON), folders (all
	// their *.json and *.ndjson, by name), or "-" for Stdin. Required.
	Inputs []string
	// Stdin is read for "-". Default: os.Stdin.
	Stdin io.Reader
	// Count is how many events to send: the input over and over. From the second
	// round on, eventId and idempotencyKey get the suffix "#2", "#3" and so on, so
	// that each event is one of its own. Default: the input once.
	Count int
	// Rate bounds the events begun per second. Default: no bound.
	Rate float64
	// Concurrency is how many requests run at once. With 1, events arrive in the
	// input's order; with more, in any. Default: 1, or 16 where Count exceeds the
	// input.
	Concurrency int
	// Attempts bounds the tries of an event that meets no answer, 429, 502, 503
	// or 504. Once an event has used them up, no further one is sent. Default: 6,
	// which a refused connection uses up within 7 seconds.
	Attempts int
	// Out gets what is to be told. Default: nothing is told.
	Out io.Writer
	// Notices gets, in text, what should not wait for the end or is no result: that
	// there is no answer and what is done about it. Default: nothing is told.
	Notices io.Writer
	// Progress draws a bar on Out while many events are sent; see [IsTerminal].
	Progress bool
	// JSON tells by one JSON object per event and a last one with the summary.
	JSON bool
	// Client posts. Default: one of its own, with 30 s for a request.
	Client *http.Client
}

// Run sends the events and tells about it. An event that is refused stops no
// other. The error is for what was not accepted, and names the first: an input
// that cannot be read (then nothing was sent), an answer other than 2xx, a
// gateway that does not answer, or the context's end. After the last two it says
// how many events were not sent.
func Run(ctx context.Context, cfg Config) (Summary, error) {
	address, err := target(cfg.URL)
	if err != nil {
		return Summary{}, err
	}
	if err := cfg.check(); err != nil {
		return Summary{}, err
	}
	items, err := load(cfg.Inputs, cfg.Stdin)
	if err != nil {
		return Summary{}, err
	}
	cfg.complete(len(items))
	gateway := address.Scheme + "://" + address.Host
	report := newReport(cfg, gateway)
	notices := &notices{w: cfg.Notices, gateway: gateway, bar: report.bar}
	client := &client{
		http: cfg.Client, target: address.String(), secret: []byte(cfg.Secret), keyID: cfg.KeyID,
		attempts: cfg.Attempts, wait: wait, notices: notices,
	}
	defer client.http.CloseIdleConnections()

	sending, giveUp := context.WithCancel(ctx)
	defer giveUp()
	jobs := make(chan item)
	results := make(chan result)
	var workers sync.WaitGroup
	for range cfg.Concurrency {
		workers.Go(func() {
			for job := range jobs {
				results <- client.send(sending, job)
			}
		})
	}
	go func() {
		produce(sending, items, cfg.Count, cfg.Rate, jobs)
		close(jobs)
		workers.Wait()
		close(results)
	}()
	for res := range results {
		report.add(res)
		if res.spent {
			giveUp() // the next event would fare no better, and take as long
		}
	}
	summary, err := report.finish(ctx.Err())
	notices.hint(summary)
	return summary, err
}

func target(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("send: the gateway's URL %q must look like http://127.0.0.1:8080", raw)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = intakePath
	}
	return u, nil
}

func (cfg *Config) check() error {
	switch {
	case cfg.Secret == "":
		return errors.New("send: no secret to sign with; give the gateway's HMAC_SECRET")
	case len(cfg.Inputs) == 0:
		return errors.New("send: nothing to send; name a file, a folder, or - for standard input")
	case cfg.Count < 0 || cfg.Count > maxCount:
		return fmt.Errorf("send: the count must lie between 0 and %d", maxCount)
	case cfg.Concurrency < 0 || cfg.Concurrency > maxConcurrency:
		return fmt.Errorf("send: the concurrency must lie between 0 and %d", maxConcurrency)
	case !(cfg.Rate >= 0) || cfg.Attempts < 0: // also when the rate is not a number
		return errors.New("send: rate and attempts must not be negative")
	}
	return nil
}

// complete fills in the defaults, now that the size of the input is known.
func (cfg *Config) complete(events int) {
	if cfg.Count == 0 {
		cfg.Count = events
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 1
		if cfg.Count > events {
			cfg.Concurrency = loadConcurrency
		}
	}
	cfg.Concurrency = min(cfg.Concurrency, cfg.Count)
	if cfg.Attempts == 0 {
		cfg.Attempts = 6
	}
	if cfg.Out == nil {
		cfg.Out = io.Discard
	}
	if cfg.Notices == nil {
		cfg.Notices = io.Discard
	}
	if cfg.Client == nil {
		cfg.Client = newHTTPClient(cfg.Concurrency)
	}
}

// produce hands out count events at the given rate, until the context ends. It
// keeps to the plan: a gateway that was slow gets the rest faster.
func produce(ctx context.Context, items []item, count int, rate float64, jobs chan<- item) {
	start := time.Now()
	for i := range count {
		if rate > 0 {
			due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
			if wait(ctx, time.Until(due)) != nil {
				return
			}
		}
		job := items[i%len(items)]
		if round := i/len(items) + 1; round > 1 {
			job = job.renamed(round)
		}
		select {
		case jobs <- job:
		case <-ctx.Done():
			return
		}
	}
}

// wait returns after d, or earlier with the error of the context.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func stdin(r io.Reader) io.Reader {
	if r == nil {
		return os.Stdin
	}
	return r
}
