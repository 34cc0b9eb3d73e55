package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type runCmd struct {
	output
	storeSetting

	HTTPAddr         string        `name:"http-addr" default:"127.0.0.1:8080" setting:"HTTP_ADDR" help:"Listen here."`
	BrokerURL        string        `default:"inproc:" setting:"BROKER_URL" help:"The broker: inproc:"`
	HMACSecret       string        `name:"hmac-secret" placeholder:"SECRET" setting:"HMAC_SECRET" help:"Couriers sign with this. Default: made and printed, on SQLite only. Others can read flags: prefer the variable."`
	AdminToken       string        `placeholder:"TOKEN" setting:"ADMIN_TOKEN" help:"Bearer token of the read endpoints. Default as above."`
	SignatureMaxSkew time.Duration `default:"300s" setting:"SIGNATURE_MAX_SKEW" help:"How far a signature's time may lie from now."`

	RetryMaxAttempts       int     `default:"5" setting:"RETRY_MAX_ATTEMPTS" help:"Attempts of the worker, the first included."`
	RetryBackoffBaseMS     int     `name:"retry-backoff-base-ms" default:"1000" setting:"RETRY_BACKOFF_BASE_MS" help:"Milliseconds before the second attempt."`
	RetryBackoffMultiplier float64 `default:"2" setting:"RETRY_BACKOFF_MULTIPLIER" help:"Growth of that wait with each attempt."`
	RetryJitterPercent     float64 `default:"20" setting:"RETRY_JITTER_PERCENT" help:"At most this much of the wait is added at random."`
	ProcessedTTLDays       int     `name:"processed-ttl-days" default:"30" setting:"PROCESSED_TTL_DAYS" help:"Days for which processed events are known."`
	DLQTTLDays             int     `name:"dlq-ttl-days" default:"90" setting:"DLQ_TTL_DAYS" help:"Days for which dead letters are kept."`

	WorkerConcurrency int           `default:"8" setting:"WORKER_CONCURRENCY" help:"Events that the worker handles at once."`
	LeaseTTL          time.Duration `name:"lease-ttl" default:"5s" setting:"LEASE_TTL" help:"After this, another process takes over from one that died."`
	ShutdownTimeout   time.Duration `default:"20s" setting:"SHUTDOWN_TIMEOUT" help:"Time to finish what is running after SIGTERM or SIGINT; a second signal stops at once."`

	LogLevel  string `default:"info" enum:"debug,info,warn,error" setting:"LOG_LEVEL" help:"One of ${enum}."`
	LogFormat string `default:"text" enum:"text,json" setting:"LOG_FORMAT" help:"One of ${enum}; logs go to standard error."`
}

func (runCmd) Help() string {
	return `Serves couriers and operators until it is told to stop, and prints where, and what to try.

Examples:

    gateway run
    HMAC_SECRET=$(openssl rand -hex 32) ADMIN_TOKEN=$(openssl rand -hex 32) \
        STORE_URL=postgres://waybill@localhost/waybill HTTP_ADDR=:8080 gateway run`
}

// Run runs the gateway.
func (c *runCmd) Run(ctx context.Context, p *Program) error {
	cfg := gateway.Config{
		HTTPAddr: c.HTTPAddr, StoreURL: c.StoreURL, BrokerURL: c.BrokerURL,
		HMACSecret: c.HMACSecret, AdminToken: c.AdminToken, SignatureMaxSkew: c.SignatureMaxSkew,
		RetryMaxAttempts: c.RetryMaxAttempts, RetryBackoffBaseMS: c.RetryBackoffBaseMS,
		RetryBackoffMultiplier: c.RetryBackoffMultiplier, RetryJitterPercent: c.RetryJitterPercent,
		ProcessedTTLDays: c.ProcessedTTLDays, DLQTTLDays: c.DLQTTLDays,
		WorkerConcurrency: c.WorkerConcurrency, LeaseTTL: c.LeaseTTL, ShutdownTimeout: c.ShutdownTimeout,
		Logger: c.logger(p.Stderr),
		Ready:  func(s gateway.Started) { c.announce(p, s) },
	}
	if err := cfg.Validate(); err != nil {
		return usageError{err}
	}
	return gateway.Run(ctx, cfg)
}

func (c *runCmd) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{}
	var level slog.Level
	if level.UnmarshalText([]byte(c.LogLevel)) == nil { // always: the names are slog's
		options.Level = level
	}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// announce tells where the gateway serves and, on a store of its own, how to try
// it. Of secrets it prints those that nobody else knows. Who has closed standard
// output does not want to know.
func (c *runCmd) announce(p *Program, s gateway.Started) {
	if c.JSON {
		_ = printJSON(p.Stdout, struct {
			URL        string `json:"url"`
			HMACSecret string `json:"hmac_secret,omitempty"`
			AdminToken string `json:"admin_token,omitempty"`
		}{s.URL, s.HMACSecret, s.AdminToken})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The gateway serves at %s\n", s.URL)
	if s.Embedded {
		c.tour(&b, p, s)
	}
	_, _ = io.WriteString(p.Stdout, b.String())
}

func (c *runCmd) tour(b *strings.Builder, p *Program, s gateway.Started) {
	var exports, made, given []string
	program := name
	if len(p.Args) > 0 {
		if dir := filepath.Dir(p.Args[0]); filepath.Base(p.Args[0]) != name {
			program = quoted(p.Args[0])
		} else if strings.ContainsRune(p.Args[0], filepath.Separator) {
			exports = append(exports, searchPath(dir))
		}
	}
	for _, secret := range []struct{ name, made string }{{"HMAC_SECRET", s.HMACSecret}, {"ADMIN_TOKEN", s.AdminToken}} {
		if secret.made == "" {
			given = append(given, secret.name)
			continue
		}
		made = append(made, secret.name)
		exports = append(exports, secret.name+"="+secret.made)
	}
	if c.StoreURL != defaultStoreURL {
		exports = append(exports, "STORE_URL="+quoted(c.StoreURL))
	}
	fmt.Fprint(b, "\nTo try it, in a second terminal, in this folder:\n")
	if len(exports) > 0 {
		fmt.Fprintf(b, "  export %s\n", strings.Join(exports, " "))
	}
	fmt.Fprintf(b, `  %s send examples/couriers/samples.ndjson --url %s
  curl -H "Authorization: Bearer $ADMIN_TOKEN" %s/v1/shipments/shp_456
  %s dlq list
`, program, s.URL, s.URL, program)
	b.WriteByte('\n')
	if len(given) > 0 {
		fmt.Fprintf(b, "%s: as given to this run; export the same there.\n", strings.Join(given, " and "))
	}
	if len(made) > 0 {
		fmt.Fprintf(b, "%s: made for this run; without a setting, the next run makes another.\n", strings.Join(made, " and "))
	}
}

// searchPath puts the program's folder first, for a shell in this folder.
func searchPath(dir string) string {
	if !filepath.IsAbs(dir) && quoted(dir) == dir {
		return fmt.Sprintf(`PATH="$PWD/%s:$PATH"`, dir)
	}
	if !filepath.IsAbs(dir) {
		return `PATH="$PWD"/` + quoted(dir) + `:"$PATH"`
	}
	return `PATH=` + quoted(dir) + `:"$PATH"`
}

// quoted is a word for a shell.
func quoted(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
