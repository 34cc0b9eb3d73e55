// Package cli is the command line of the gateway, and of waybill, which has the operator's
// commands alone: it parses, calls the package that does the work, and prints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kong"

	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/gateway"
	"github.com/waybill-go/waybill/service/internal/store"
)

// Program is what a process was started with.
type Program struct {
	// Args are those of the process, the program's name first.
	Args []string
	// LookupEnv reads the environment.
	LookupEnv func(name string) (value string, ok bool)
	Stdin     io.Reader
	Stdout    io.Writer
	Stderr    io.Writer
	// Interactive: a person reads Stderr and types into Stdin.
	Interactive bool
	// Hangup returns a channel that has each SIGHUP until stop is called; before, and without it, the signal
	// ends the process.
	Hangup func() (hangup <-chan os.Signal, stop func())
	// Username is the system's name for whoever runs the program. Default: that of
	// package os/user.
	Username func() (string, error)

	tool    *tool
	origins *origins        // of the settings
	stores  []string        // the addresses of the databases that the command works on
	given   map[string]bool // the flags on the command line
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // the command line or the settings are at fault
	exitFound  = 3 // all went well, and something is not as it should be
)

const name = "gateway"

// theGateway is the gateway's command line.
func theGateway() *tool {
	return &tool{
		name: name, description: "Waybill's courier gateway.", storeFlag: "--store-url", grammar: &grammar{}, couriers: true,
		open: backend.OpenExisting, openSchema: backend.OpenSchema, schemaSQL: backend.MigrationSQL,
		exampleEvent: "evt_141", exampleConsumer: "shipment-projection", exampleMatch: `payload.payload.shipmentId == "shp_456"`,
		matchNote: " The payload is the queue's message; what the courier has sent is payload.payload.",
		finality:  "the gateway runs nothing again that it has processed: its ledger says that a processed event is final. Have the courier send a new event instead",
	}
}

type grammar struct {
	ConfigFile string `name:"config" placeholder:"FILE" setting:"WAYBILL_CONFIG" help:"Settings, in YAML"`

	Run      runCmd        `cmd:"" help:"Run the gateway: API, dispatcher and worker in one process."`
	API      apiCmd        `cmd:"" name:"api" help:"Run the API alone."`
	Dispatch dispatchCmd   `cmd:"" help:"Run a dispatcher alone."`
	Worker   workerCmd     `cmd:"" help:"Run a worker alone."`
	Send     sendCmd       `cmd:"" help:"Sign events and post them to a gateway."`
	DLQ      storedDLQ     `cmd:"" name:"dlq" help:"Look after dead letters: list, group, plan, replay, close."`
	Outbox   storedOutbox  `cmd:"" help:"Look at the outbox, or send again what a broker has lost."`
	Routes   storedRoutes  `cmd:"" help:"Check, explain, test and compare routing files."`
	Audit    auditCmd      `cmd:"" help:"Account for every event; name what a broker has lost."`
	Trace    traceCmd      `cmd:"" help:"Tell an event's life, from intake to shipment."`
	Migrate  storedMigrate `cmd:"" help:"Bring the database's schema up to date, or show it."`
	Config   configCmd     `cmd:"" help:"Show each setting, and where its value is from."`
	Schemas  schemasCmd    `cmd:"" help:"Print the JSON Schemas of events and messages."`
	Token    tokenCmd      `cmd:"" help:"Make an operator's token, and its hash."`
	Version  versionCmd    `cmd:"" help:"Print the version."`
}

func (grammar) Help() string {
	return `Every setting is a flag, an environment variable and a key of the file of --config; the first of them wins.

Examples:

    gateway run
    gateway send examples/couriers/samples.ndjson --rate 20
    gateway dlq list`
}

// usageError is the fault of whoever called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// foundError says what a command has found that somebody has to see to.
type foundError struct{ error }

// Run runs the command that p.Args say, until it is done or ctx ends, and returns
// the exit code: 0, 1 for a failure, 2 where the command line or a setting is at
// fault, 3 where a command has found what somebody has to see to. Errors go to p.Stderr.
func Run(ctx context.Context, p Program) (exitCode int) { return theGateway().run(ctx, p) }

// RunWaybill is [Run] for the program waybill: the operator's commands on the stores of any
// application of the library.
func RunWaybill(ctx context.Context, p Program) (exitCode int) { return theWaybill().run(ctx, p) }

func (t *tool) run(ctx context.Context, p Program) (exitCode int) {
	helped := false
	p.tool, p.origins = t, newOrigins(p.LookupEnv)
	parser, err := kong.New(t.grammar, kong.Name(t.name), kong.Description(t.description),
		kong.Writers(p.Stdout, p.Stderr), kong.Exit(func(int) { helped = true }),
		kong.Vars{"default_store": defaultStoreURL, "program": t.name, "event_id": t.eventID(), "match": t.exampleMatch, "match_note": t.matchNote},
		kong.Resolvers(p.origins), kong.ValueFormatter(helpWithSetting),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}), kong.PostBuild(t.adapt),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(&p))
	if err != nil {
		return fail(p, "", err)
	}
	command, err := parser.Parse(usual(p.Args[min(1, len(p.Args)):]))
	if helped {
		return exitOK
	}
	if p.origins.failed != nil {
		return fail(p, t.name, usageError{p.origins.failed})
	}
	path := t.name
	if parseErr := (*kong.ParseError)(nil); errors.As(err, &parseErr) {
		if selected := parseErr.Context.Selected(); selected != nil {
			path = selected.FullPath()
		}
		return fail(p, path, usageError{parseErr.Unwrap()})
	}
	if err != nil {
		return fail(p, path, err)
	}
	p.origins.flags(command)
	if p.given, err = givenFlags(command); err != nil {
		return fail(p, command.Selected().FullPath(), err)
	}
	if err := command.Run(); err != nil {
		return fail(p, command.Selected().FullPath(), err)
	}
	return exitOK
}

// usual understands two ways to ask that people try.
func usual(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) == 1 && args[0] == "--version":
		return []string{"version"}
	}
	return args
}

// fail says what went wrong and, if the caller can help it, what to do next.
func fail(p Program, path string, err error) (exitCode int) {
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", p.tool.name, clean(err.Error()))
	var misused usageError
	var found foundError
	switch {
	case errors.As(err, &found):
		return exitFound
	case errors.As(err, &misused):
		_, _ = fmt.Fprintf(p.Stderr, "Run \"%s --help\" for its flags and examples.\n", path)
	case store.Busy(err):
		_, _ = fmt.Fprintln(p.Stderr, "Another process is writing to the database; try again.")
		return exitFailed
	case errors.Is(err, store.ErrAddress), errors.Is(err, gateway.ErrNoSecret), errors.Is(err, gateway.ErrSecretFile):
	default:
		return exitFailed
	}
	return exitUsage
}
