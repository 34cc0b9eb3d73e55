package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

// ErrConflict is what an [Acceptor] returns for an idempotency key that it knows
// with another body.
var ErrConflict = errors.New("the idempotency key is known with another body")

// ErrBusy is what an [Acceptor] returns when too many events wait already.
var ErrBusy = errors.New("too many events wait to be stored")

// ErrNotFound is what a [Reader] returns for what it does not know.
var ErrNotFound = errors.New("not found")

// Acceptor takes events over.
type Acceptor interface {
	// Accept stores the event durably before it returns. It comes as [courier.Parse] gives it; bodyHash is
	// the [courier.CanonicalHash] of its body. It returns the trace id under which
	// the event is known: the event's own, or for a repeat (same idempotency
	// key, same hash), which changes nothing, that of the first time. The error
	// is ErrConflict; or ErrBusy, at once; or means that the event could not be
	// stored now, or that nobody knows: after bounded time, or when ctx ends.
	Accept(ctx context.Context, ev courier.Event, payload courier.Payload, bodyHash string) (traceID string, err error)
}

// Reader tells what became of events. It returns ErrNotFound for what it does
// not know.
type Reader interface {
	Shipment(ctx context.Context, shipmentID string) (courier.Shipment, error)
	// Events returns all events that couriers call eventID, or those of one
	// source only if source is not empty.
	Events(ctx context.Context, eventID, source string) ([]courier.EventStatus, error)
}

// Check is something that the gateway needs in order to serve.
type Check struct {
	// Name is shown to whoever asks, so it holds no address or secret.
	Name string
	// Ready returns an error while the gateway cannot do without.
	Ready func(context.Context) error
}

// Config is what the handler is made of.
type Config struct {
	Acceptor Acceptor         // required
	Reader   Reader           // required
	Keyring  *courier.Keyring // required
	// DeadLetters are looked at and acted on. Required.
	DeadLetters DeadLetters
	// Tokens are the bearer tokens, with what each may do. Default: none, so that
	// all but the intake and what is open refuses everybody.
	Tokens *credentials.Tokens
	// Checks decide on /readyz.
	Checks []Check
	// Metrics is what Prometheus scrapes at /metrics. Default: nothing is there.
	Metrics http.Handler
	// MaxBodyBytes bounds a request's body. Default: 1 MiB.
	MaxBodyBytes int64
	// MaxSkew is how far a signature's time may lie from now, either way.
	// Default: [courier.DefaultMaxSkew].
	MaxSkew time.Duration
	// Overloaded, asked before an event is read, says that none is taken in now: why, and when the courier is to send
	// again. It must not take long. Default: all are.
	Overloaded func() (retryAfter time.Duration, reason string, yes bool)
	// Version is the program's, for the OpenAPI document. Default: "dev".
	Version string
	// Logger gets a record per request: 5xx as errors, 4xx as info, the rest as
	// debug. No bodies, no secrets. Default: none.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

type api struct {
	Config
	router chi.Router
}

// New returns the gateway's handler.
func New(cfg Config) (http.Handler, error) {
	if cfg.Acceptor == nil || cfg.Reader == nil || cfg.Keyring == nil || cfg.DeadLetters == nil {
		return nil, errors.New("httpapi: Acceptor, Reader, Keyring and DeadLetters are required")
	}
	if cfg.Tokens == nil {
		cfg.Tokens = &credentials.Tokens{}
	}
	if cfg.MaxBodyBytes == 0 {
		cfg.MaxBodyBytes = 1 << 20
	}
	if cfg.MaxSkew == 0 {
		cfg.MaxSkew = courier.DefaultMaxSkew
	}
	if cfg.MaxBodyBytes < 0 || cfg.MaxSkew < 0 {
		return nil, errors.New("httpapi: MaxBodyBytes and MaxSkew must not be negative")
	}
	if cfg.Overloaded == nil {
		cfg.Overloaded = func() (time.Duration, string, bool) { return 0, "", false }
	}
	if cfg.Version == "" {
		cfg.Version = "dev"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &api{Config: cfg, router: chi.NewRouter()}
	a.router.Use(withTrace, a.logged, a.recovered, hardened, middleware.GetHead)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) {
		a.refuse(w, r, problemNotFound.with("there is nothing at this path; see /openapi.json"))
	})
	a.router.MethodNotAllowed(a.methodNotAllowed)
	if err := a.routes(); err != nil {
		return nil, err
	}
	return a.shortcut(), nil
}

// intakePath is where couriers send events.
const intakePath = "/v1/events/courier"

// shortcut leaves the router out for the one request that comes by the thousand.
func (a *api) shortcut() http.Handler {
	intake := withTrace(a.logged(a.recovered(hardened(http.HandlerFunc(a.intake)))))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Path == intakePath && r.URL.RawPath == "" {
			intake.ServeHTTP(w, r)
			return
		}
		a.router.ServeHTTP(w, r)
	})
}

func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	allowed := slices.DeleteFunc([]string{http.MethodGet, http.MethodPost}, func(method string) bool {
		return !a.router.Match(chi.NewRouteContext(), method, path)
	})
	if slices.Contains(allowed, http.MethodGet) {
		allowed = append(allowed, http.MethodHead) // by middleware.GetHead
	}
	a.allowOnly(allowed...)(w, r)
}

func (a *api) allowOnly(methods ...string) http.HandlerFunc {
	list := strings.Join(methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		p := problemMethod.with(r.Method + " is not possible here; use " + list)
		p.headers = http.Header{"Allow": {list}}
		a.refuse(w, r, p)
	}
}

// Values of headers that all answers share; nobody changes them.
var (
	noStore  = []string{"no-store"}
	noSniff  = []string{"nosniff"}
	jsonType = []string{contentTypeJSON}
)

// hardened sets the headers that keep answers from being cached or read as
// something else.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
		next.ServeHTTP(w, r)
	})
}

// NewServer returns a server for the handler, with bounds on all that a client
// can draw out: 5 s for the headers, 15 s for the whole request, 30 s for the
// answer, a minute of idleness, 16 KiB of headers.
func NewServer(addr string, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Addr:              addr,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}
