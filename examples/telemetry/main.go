// Command telemetry bills what stations measure, in three steps that events connect:
// windows are closed, statistics and settlements calculated. It shows what becomes of
// events that cannot be processed, and how they are sent again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `telemetry closes measuring windows of stations, settles them, lets two stations fail,
mends them, and sends their dead letters again by SQL. It exits with 0 only if each
window has led to exactly one settlement.

Run it again on the same database if you like, but one at a time: the operator sends all dead
letters there again.

Usage:
  telemetry [flags]

Examples:
  telemetry                                           # on the file telemetry.db
  telemetry -store /tmp/t.db -windows 100
  telemetry -store postgres://user:password@localhost/telemetry -v

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const maxWindows = 10_000

// lines makes one line of an error that has several.
var lines = strings.NewReplacer("\n\t", " ", "\n", "; ")

// run returns the exit code: 1 if something went wrong, 2 if the flags are.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("telemetry", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // one line says what is wrong
	flags.StringVar(&o.store, "store", "telemetry.db", "a SQLite `file`, or a database as postgres://…")
	flags.IntVar(&o.windows, "windows", 3, "how many windows each of the 12 stations closes, up to 10000")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "give up after this")
	verbose := flags.Bool("v", false, "log what fails, to standard error")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("there is nothing but flags, and %q is none", flags.Arg(0))
	case o.windows < 1 || o.windows > maxWindows:
		err = fmt.Errorf("-windows must be from 1 to %d", maxWindows)
	case o.timeout <= 0:
		err = errors.New("-timeout must be positive")
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "telemetry: %v; see telemetry --help\n", err)
		return 2
	}
	logger := slog.New(slog.DiscardHandler) // the failures here are intended, and part of the report
	if *verbose {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if err := demonstrate(ctx, o, stdout, logger); err != nil {
		_, _ = fmt.Fprintln(stderr, "telemetry:", lines.Replace(err.Error()))
		return 1
	}
	return 0
}
