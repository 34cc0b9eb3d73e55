package cli

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/term"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

// Main runs a command line in this process, and ends it with the exit code. A first signal
// ends the command, a second one the process.
func Main(run func(context.Context, Program) (exitCode int)) {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gateway.GCPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, Program{
		Args: os.Args, LookupEnv: os.LookupEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Hangup:      hangup,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}))
}

func hangup() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
