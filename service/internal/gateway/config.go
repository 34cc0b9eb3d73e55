// Package gateway puts the parts of the gateway together.
package gateway

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// Parts are the parts of the gateway that a process runs.
type Parts uint8

// The parts. Each may run in any number of processes.
const (
	API      Parts = 1 << iota // takes events in and shows what became of them
	Dispatch                   // takes events from the outbox to the broker, and prunes
	Work                       // handles events, and sweeps the ledger

	All = API | Dispatch | Work
)

// has reports whether any of those is among them.
func (p Parts) has(those Parts) bool { return p&those != 0 }

// String names the parts as their commands are called.
func (p Parts) String() string {
	switch p {
	case API:
		return "api"
	case Dispatch:
		return "dispatch"
	case Work:
		return "worker"
	}
	return "all"
}

// What the API does with what it accepts.
const (
	IntakeOutbox = "outbox" // into ledger and outbox, from where dispatchers take it to the broker
	IntakeDirect = "direct" // straight into the broker
)

// GCPercent is GOGC in a process of the gateway, unless its environment sets that. Few bytes live for long in it: by Go's
// default of 100 it would collect garbage every few hundred events.
const GCPercent = 400

// Config is the gateway's configuration; each field's setting has its name in
// capitals. A process needs the settings of its parts.
type Config struct {
	// Parts that run. Default: all.
	Parts Parts

	// HTTPAddr is where the API listens. A process without it has only /healthz and
	// /readyz there; if it is empty, nothing.
	HTTPAddr  string
	StoreURL  string
	BrokerURL string
	// Intake is where the API puts what it accepts: see [IntakeOutbox] and [IntakeDirect]. Default: the outbox.
	Intake           string
	HMACSecret       string
	HMACSecretsFile  string // instead of HMACSecret
	AdminToken       string
	AdminTokensFile  string // beside AdminToken, or instead
	SignatureMaxSkew time.Duration
	// The API refuses events while more than that wait in the outbox, or one for longer. 0: no limit.
	BackpressureMaxPending int
	BackpressureMaxLag     time.Duration

	RetryMaxAttempts       int
	RetryBackoffBaseMS     int
	RetryBackoffMultiplier float64
	RetryJitterPercent     float64
	ProcessedTTLDays       int
	DLQTTLDays             int

	WorkerConcurrency int
	// WorkerBatch is how many events share a transaction of the worker at most. 1: none do.
	WorkerBatch int
	// ShipmentEventsMaxLen is how many messages the queue shipment-events keeps, more or less. 0: there are none.
	ShipmentEventsMaxLen int64
	LeaseTTL             time.Duration
	ShutdownTimeout      time.Duration

	Logger *slog.Logger
	// LookupEnv reads the environment, for secrets that files leave there. Default: os.LookupEnv.
	LookupEnv func(name string) (value string, ok bool)
	// Hangup tells, with each value, to read files of secrets again. Default: it never comes.
	Hangup <-chan os.Signal
	// Ready, if not nil, is told once the gateway runs.
	Ready func(Started)

	// wrap lets tests put a faulty part in place, and now another clock.
	wrap func(replaceable) replaceable
	now  func() time.Time
}

// Started is what a gateway tells its operator when it runs.
type Started struct {
	// URL is the base address of its HTTP endpoints; empty if it has none.
	URL string
	// Embedded: on a store in a file of this process.
	Embedded bool
	// HMACSecret and AdminToken are not empty if they were made for this run.
	HMACSecret, AdminToken string
}

// ErrNoSecret is the error of an API that starts without secrets outside of the
// embedded default: there they are not made up.
var ErrNoSecret = errors.New("HMAC_SECRET or HMAC_SECRETS_FILE, and ADMIN_TOKEN or ADMIN_TOKENS_FILE, are needed (only gateway run on SQLite makes them up); make them with: openssl rand -hex 32")

// secrets fills in what the embedded default may make up: one process, which nobody
// shares secrets with.
func (c *Config) secrets(embedded bool) (made Started, err error) {
	if !c.Parts.has(API) || c.complete() {
		return made, nil
	}
	if !embedded {
		return made, ErrNoSecret
	}
	if !c.signed() {
		made.HMACSecret = newSecret()
		c.HMACSecret = made.HMACSecret
	}
	if !c.administered() {
		made.AdminToken = newSecret()
		c.AdminToken = made.AdminToken
	}
	return made, nil
}

// direct reports whether the API runs, and publishes what it accepts.
func (c *Config) direct() bool {
	return cmp.Or(c.Parts, All).has(API) && c.Intake == IntakeDirect
}

// needsBroker reports whether a part does that runs.
func (c *Config) needsBroker() bool { return cmp.Or(c.Parts, All).has(Dispatch|Work) || c.direct() }

// signed reports whether it is said what couriers sign with.
func (c *Config) signed() bool { return c.HMACSecret != "" || c.HMACSecretsFile != "" }

// complete reports whether no secret has to be made up.
func (c *Config) complete() bool { return c.signed() && c.administered() }

// administered reports whether there is a token.
func (c *Config) administered() bool { return c.AdminToken != "" || c.AdminTokensFile != "" }

func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

const day = 24 * time.Hour

func (c *Config) policy() eventing.Policy {
	return eventing.Policy{
		Concurrency: c.WorkerConcurrency,
		Timeout:     handlerTimeout,
		Retry: eventing.RetryPolicy{
			MaxAttempts: c.RetryMaxAttempts, Base: time.Duration(c.RetryBackoffBaseMS) * time.Millisecond,
			Multiplier: c.RetryBackoffMultiplier, Jitter: c.RetryJitterPercent / 100, JitterBasis: eventing.JitterOfDelay,
		},
		RefuseForce:         true, // an event that the ledger has as processed stays so
		InboxRetention:      c.processedTTL(),
		DeadLetterRetention: c.deadLetterTTL(),
	}
}

func (c *Config) processedTTL() time.Duration  { return time.Duration(c.ProcessedTTLDays) * day }
func (c *Config) deadLetterTTL() time.Duration { return time.Duration(c.DLQTTLDays) * day }

const handlerTimeout = 10 * time.Second

// Validate names the settings that are at fault, of those that the parts need.
// [Run] does it first.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	parts := cmp.Or(c.Parts, All)
	if parts.has(API) {
		check(c.HTTPAddr != "", "HTTP_ADDR is empty: it must say where to listen")
		check(parts == All || c.complete(), "%w", ErrNoSecret)
		check(c.HMACSecret == "" || c.HMACSecretsFile == "", "HMAC_SECRET and HMAC_SECRETS_FILE are both set: give one of them")
		check(c.BackpressureMaxPending >= 0, "BACKPRESSURE_MAX_PENDING is %d: it must be positive, or 0 for no limit", c.BackpressureMaxPending)
		check(c.BackpressureMaxLag >= 0, "BACKPRESSURE_MAX_LAG is %v: it must be positive, or 0 for no limit", c.BackpressureMaxLag)
		check(c.SignatureMaxSkew > 0, "SIGNATURE_MAX_SKEW is %v: it must be positive", c.SignatureMaxSkew)
	}
	if parts.has(API) {
		check(c.Intake == "" || c.Intake == IntakeOutbox || c.Intake == IntakeDirect, "INTAKE is %q: it must be %s or %s", c.Intake, IntakeOutbox, IntakeDirect)
		check(!c.direct() || c.BrokerURL != inProcess && c.BrokerURL != "",
			"BROKER_URL is %q, and INTAKE is %s: what that accepts is in the broker alone, which has to keep it: give redis://… or postgres://…", c.BrokerURL, IntakeDirect)
	}
	if c.needsBroker() {
		_, err := parseBroker(c.BrokerURL)
		check(err == nil, "%w", err)
	}
	if parts.has(Dispatch | Work) {
		check(parts == All || c.BrokerURL != inProcess, "BROKER_URL is %s, which reaches no other process: give dispatcher and worker the same redis://… or postgres://…, or use gateway run", inProcess)
		check(c.LeaseTTL >= 100*time.Millisecond, "LEASE_TTL is %v: it must be at least 100ms", c.LeaseTTL)
		check(c.ShipmentEventsMaxLen >= 0, "SHIPMENT_EVENTS_MAXLEN is %d: it must not be negative", c.ShipmentEventsMaxLen)
		check(c.DLQTTLDays > 0 && c.DLQTTLDays <= maxDays, "DLQ_TTL_DAYS is %d: it must be from 1 to %d", c.DLQTTLDays, maxDays)
	}
	if parts.has(Work) {
		check(c.RetryMaxAttempts > 0, "RETRY_MAX_ATTEMPTS is %d: it must be positive", c.RetryMaxAttempts)
		check(c.RetryBackoffBaseMS > 0, "RETRY_BACKOFF_BASE_MS is %d: it must be positive", c.RetryBackoffBaseMS)
		check(c.RetryBackoffMultiplier >= 1, "RETRY_BACKOFF_MULTIPLIER is %v: it must be at least 1", c.RetryBackoffMultiplier)
		check(c.RetryJitterPercent >= 0 && c.RetryJitterPercent <= 100, "RETRY_JITTER_PERCENT is %v: it must be from 0 to 100", c.RetryJitterPercent)
		check(c.ProcessedTTLDays > 0 && c.ProcessedTTLDays <= maxDays, "PROCESSED_TTL_DAYS is %d: it must be from 1 to %d", c.ProcessedTTLDays, maxDays)
		check(c.WorkerConcurrency > 0, "WORKER_CONCURRENCY is %d: it must be positive", c.WorkerConcurrency)
		check(c.WorkerBatch > 0 && c.WorkerBatch <= maxWorkerBatch, "WORKER_BATCH is %d: it must be from 1 to %d", c.WorkerBatch, maxWorkerBatch)
	}
	check(c.HTTPAddr == "" || listenable(c.HTTPAddr), "HTTP_ADDR is %q: it must be HOST:PORT or :PORT, as in 127.0.0.1:8080", c.HTTPAddr)
	check(c.ShutdownTimeout > 0, "SHUTDOWN_TIMEOUT is %v: it must be positive", c.ShutdownTimeout)
	if len(errs) == 0 {
		if err := c.policy().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("PROCESSED_TTL_DAYS and the RETRY settings: %w", err))
		}
	}
	return errors.Join(errs...)
}

func listenable(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}

const (
	maxDays        = 36500
	maxWorkerBatch = 1000
)
