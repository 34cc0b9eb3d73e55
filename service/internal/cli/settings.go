package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

// settingTag names the environment variable of a flag. It is not kong's own "env",
// which reads the process's environment whatever it is given.
const settingTag = "setting"

// helpWithSetting adds the environment variable to a flag's help.
func helpWithSetting(v *kong.Value) string {
	if name := v.Tag.Get(settingTag); name != "" {
		return strings.TrimSuffix(v.Help, ".") + " ($" + name + ")."
	}
	return v.Help
}

// output is how a command prints.
type output struct {
	JSON bool `help:"Print JSON, for scripts."`
}

const defaultStoreURL = "sqlite:waybill.db"

// storeSetting is the database of a command.
type storeSetting struct {
	StoreURL string `default:"${default_store}" setting:"STORE_URL" help:"The gateway's database: sqlite:FILE, postgres://… or mongodb://…"`
}

// storesSetting are the databases of the operator's commands, most of which take one.
type storesSetting struct {
	StoreURL []string `default:"${default_store}" sep:"none" setting:"STORE_URL" help:"The gateway's database: sqlite:FILE, postgres://… or mongodb://…; dlq plan and dlq apply take several."`
}

// AfterApply tells the commands.
func (s *storesSetting) AfterApply(p *Program) error {
	p.stores = s.StoreURL
	return nil
}

// The gateway's commands on stores.
type (
	storedDLQ struct {
		storesSetting
		dlqCmd
	}
	storedOutbox struct {
		storesSetting
		outboxCmd
	}
	storedRoutes struct {
		storesSetting
		routesCmd
	}
	storedMigrate struct {
		storesSetting
		migrateCmd
	}
)

// group is a group of flags, which the parts of the gateway share.
type group interface {
	fill(cfg *gateway.Config, p *Program)
}

func (s storeSetting) fill(cfg *gateway.Config, _ *Program) { cfg.StoreURL = s.StoreURL }

// intakeSettings are those of a process with the API.
type intakeSettings struct {
	Intake           string        `default:"outbox" setting:"INTAKE" help:"Where accepted events go: outbox, in the database; or direct, straight to the broker."`
	HTTPAddr         string        `name:"http-addr" default:"127.0.0.1:8080" setting:"HTTP_ADDR" help:"Listen here."`
	HMACSecret       string        `name:"hmac-secret" placeholder:"SECRET" setting:"HMAC_SECRET" help:"Couriers sign with this. Default: made and printed by gateway run on SQLite, else needed. Others can read flags: prefer the variable."`
	HMACSecretsFile  string        `name:"hmac-secrets-file" placeholder:"FILE" setting:"HMAC_SECRETS_FILE" help:"Instead: a YAML file with secrets for each source. It is read again on SIGHUP."`
	AdminToken       string        `placeholder:"TOKEN" setting:"ADMIN_TOKEN" help:"Bearer token of operators, who may do everything. Default as above."`
	AdminTokensFile  string        `placeholder:"FILE" setting:"ADMIN_TOKENS_FILE" help:"A YAML file with named tokens and what each may do. It is read again on SIGHUP."`
	SignatureMaxSkew time.Duration `default:"300s" setting:"SIGNATURE_MAX_SKEW" help:"How far a signature's time may lie from now."`

	BackpressureMaxPending int           `default:"1000000" setting:"BACKPRESSURE_MAX_PENDING" help:"Answer 503 while more events than this wait in the outbox; 0: no limit."`
	BackpressureMaxLag     time.Duration `default:"0s" setting:"BACKPRESSURE_MAX_LAG" help:"Answer 503 while one has been due in the outbox for longer; 0: no limit."`
}

func (s intakeSettings) fill(cfg *gateway.Config, p *Program) {
	cfg.LookupEnv, cfg.Intake = p.LookupEnv, s.Intake
	cfg.HTTPAddr, cfg.SignatureMaxSkew = s.HTTPAddr, s.SignatureMaxSkew
	cfg.HMACSecret, cfg.HMACSecretsFile, cfg.AdminToken = s.HMACSecret, s.HMACSecretsFile, s.AdminToken
	cfg.AdminTokensFile = s.AdminTokensFile
	cfg.BackpressureMaxPending, cfg.BackpressureMaxLag = s.BackpressureMaxPending, s.BackpressureMaxLag
}

// healthSettings are those of a process without the API.
type healthSettings struct {
	HTTPAddr string `name:"http-addr" placeholder:"ADDRESS" setting:"HTTP_ADDR" help:"Serve /healthz and /readyz here. Default: nowhere."`
}

func (s healthSettings) fill(cfg *gateway.Config, _ *Program) { cfg.HTTPAddr = s.HTTPAddr }

// brokerSetting is the broker of a process.
type brokerSetting struct {
	BrokerURL string `default:"inproc:" setting:"BROKER_URL" help:"The broker: redis://…, rediss://…, postgres://… or, with gateway run, inproc:"`
}

func (s brokerSetting) fill(cfg *gateway.Config, _ *Program) { cfg.BrokerURL = s.BrokerURL }

// brokerSettings are those of both who always use the broker.
type brokerSettings struct {
	brokerSetting
	LeaseTTL   time.Duration `name:"lease-ttl" default:"4s" setting:"LEASE_TTL" help:"After this, another process takes over from one that died."`
	DLQTTLDays int           `name:"dlq-ttl-days" default:"90" setting:"DLQ_TTL_DAYS" help:"Days for which dead letters are kept."`

	ShipmentEventsMaxLen int64 `name:"shipment-events-maxlen" default:"1000000" setting:"SHIPMENT_EVENTS_MAXLEN" help:"Messages that the queue shipment-events keeps, read or not. 0: there are none."`
}

func (s brokerSettings) fill(cfg *gateway.Config, _ *Program) {
	cfg.BrokerURL, cfg.LeaseTTL, cfg.DLQTTLDays, cfg.ShipmentEventsMaxLen = s.BrokerURL, s.LeaseTTL, s.DLQTTLDays, s.ShipmentEventsMaxLen
}

type workerSettings struct {
	RetryMaxAttempts       int     `default:"5" setting:"RETRY_MAX_ATTEMPTS" help:"Attempts of the worker, the first included."`
	RetryBackoffBaseMS     int     `name:"retry-backoff-base-ms" default:"1000" setting:"RETRY_BACKOFF_BASE_MS" help:"Milliseconds before the second attempt."`
	RetryBackoffMultiplier float64 `default:"2" setting:"RETRY_BACKOFF_MULTIPLIER" help:"Growth of that wait with each attempt."`
	RetryJitterPercent     float64 `default:"20" setting:"RETRY_JITTER_PERCENT" help:"At most this much of the wait is added at random."`
	ProcessedTTLDays       int     `name:"processed-ttl-days" default:"30" setting:"PROCESSED_TTL_DAYS" help:"Days for which processed events are known."`
	WorkerConcurrency      int     `default:"8" setting:"WORKER_CONCURRENCY" help:"Batches of events that the worker handles at once."`
	WorkerBatch            int     `default:"100" setting:"WORKER_BATCH" help:"Events that share a transaction of the worker at most. 1: none do."`
}

func (s workerSettings) fill(cfg *gateway.Config, _ *Program) {
	cfg.RetryMaxAttempts, cfg.RetryBackoffBaseMS = s.RetryMaxAttempts, s.RetryBackoffBaseMS
	cfg.RetryBackoffMultiplier, cfg.RetryJitterPercent = s.RetryBackoffMultiplier, s.RetryJitterPercent
	cfg.ProcessedTTLDays, cfg.WorkerConcurrency, cfg.WorkerBatch = s.ProcessedTTLDays, s.WorkerConcurrency, s.WorkerBatch
}

// processSettings are those of every process.
type processSettings struct {
	ShutdownTimeout time.Duration `default:"20s" setting:"SHUTDOWN_TIMEOUT" help:"Time to finish what is running after SIGTERM or SIGINT; a second signal stops at once."`
	LogLevel        string        `default:"info" enum:"debug,info,warn,error" setting:"LOG_LEVEL" help:"One of ${enum}."`
	LogFormat       string        `default:"text" enum:"text,json" setting:"LOG_FORMAT" help:"One of ${enum}; logs go to standard error."`
}

func (s processSettings) fill(cfg *gateway.Config, p *Program) {
	cfg.ShutdownTimeout = s.ShutdownTimeout
	options := &slog.HandlerOptions{}
	var level slog.Level
	if level.UnmarshalText([]byte(s.LogLevel)) == nil { // always: the names are slog's
		options.Level = level
	}
	if s.LogFormat == "json" {
		cfg.Logger = slog.New(slog.NewJSONHandler(p.Stderr, options))
	} else {
		cfg.Logger = slog.New(slog.NewTextHandler(p.Stderr, options))
	}
}

// start runs parts of the gateway with the settings of some groups.
func start(ctx context.Context, p *Program, parts gateway.Parts, ready func(gateway.Started), groups ...group) error {
	cfg := gateway.Config{Parts: parts, Ready: ready}
	for _, g := range groups {
		g.fill(&cfg, p)
	}
	if err := cfg.Validate(); err != nil {
		return usageError{p.origins.explain(err)}
	}
	if p.origins.exposed != "" {
		cfg.Logger.Warn("gateway: configuration file", "note", p.origins.exposed)
	}
	if (cfg.HMACSecretsFile != "" || cfg.AdminTokensFile != "") && p.Hangup != nil {
		hangup, stop := p.Hangup()
		defer stop()
		cfg.Hangup = hangup
	}
	return gateway.Run(ctx, cfg)
}

// told says that a part runs, and where its endpoints are if it has any.
func (o output) told(p *Program, text string) func(gateway.Started) {
	return func(s gateway.Started) {
		if o.JSON {
			_ = printJSON(p.Stdout, struct {
				URL string `json:"url,omitempty"`
			}{s.URL})
			return
		}
		if s.URL != "" {
			text += " at " + s.URL
		}
		_, _ = fmt.Fprintln(p.Stdout, text)
	}
}
