// Package cli is the command line of the gateway: it parses, calls the package
// that does the work, and prints.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kong"

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
	// Username is the system's name for whoever runs the program. Default: that of
	// package os/user.
	Username func() (string, error)
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // the command line or the settings are at fault
)

const name = "gateway"

type grammar struct {
	Run     runCmd     `cmd:"" help:"Run the gateway: API, dispatcher and worker in one process."`
	Send    sendCmd    `cmd:"" help:"Sign events and post them to a gateway."`
	DLQ     dlqCmd     `cmd:"" name:"dlq" help:"Look after dead letters: list, show, review, replay, close."`
	Outbox  outboxCmd  `cmd:"" help:"Look at the outbox, or send again what a broker has lost."`
	Migrate migrateCmd `cmd:"" help:"Bring the database's schema up to date, or show it."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func (grammar) Help() string {
	return `Every setting is a flag and an environment variable; the flag wins.

Examples:

    gateway run
    gateway send examples/couriers/samples.ndjson
    gateway dlq list`
}

// usageError is the fault of whoever called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Run runs the command that p.Args say, until it is done or ctx ends, and returns
// the exit code: 0, 1 for a failure, 2 where the command line or a setting is at
// fault. Errors go to p.Stderr.
func Run(ctx context.Context, p Program) (exitCode int) {
	helped := false
	parser, err := kong.New(&grammar{}, kong.Name(name), kong.Description("Waybill's courier gateway."),
		kong.Writers(p.Stdout, p.Stderr), kong.Exit(func(int) { helped = true }),
		kong.Vars{"default_store": defaultStoreURL}, kong.Resolvers(environment(p.LookupEnv)), kong.ValueFormatter(helpWithSetting),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(&p))
	if err != nil {
		return fail(p, "", err)
	}
	command, err := parser.Parse(p.Args[min(1, len(p.Args)):])
	if helped {
		return exitOK
	}
	path := name
	if parseErr := (*kong.ParseError)(nil); errors.As(err, &parseErr) {
		if selected := parseErr.Context.Selected(); selected != nil {
			path = selected.FullPath()
		}
		return fail(p, path, usageError{parseErr.Unwrap()})
	}
	if err != nil {
		return fail(p, path, err)
	}
	if err := command.Run(); err != nil {
		return fail(p, command.Selected().FullPath(), err)
	}
	return exitOK
}

// fail says what went wrong and, if the caller can help it, what to do next.
func fail(p Program, path string, err error) (exitCode int) {
	_, _ = fmt.Fprintf(p.Stderr, "%s: %s\n", name, clean(err.Error()))
	var misused usageError
	switch {
	case errors.As(err, &misused):
		_, _ = fmt.Fprintf(p.Stderr, "Run \"%s --help\" for its flags and examples.\n", path)
	case errors.Is(err, store.ErrAddress), errors.Is(err, gateway.ErrNoSecret):
	default:
		return exitFailed
	}
	return exitUsage
}
