// Command casework is a case-management system: citizens apply for assistance, officers decide, payments go
// out, and four engines act on 29 types of events, as the routing table in routes.yaml says. It plays the lives of
// some hundred cases, with failures, and shows what becomes of them.
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
	"syscall"
	"time"
)

const usage = `casework plays the lives of some hundred cases, in which things fail, has an operator look after
those that are frozen, and audits the database. It exits with 0 only if, in the end, each case has made its
transitions once and in order, every event is in the log, and nothing is under way.

Usage:
  casework [flags]

Examples:
  casework                                           # on the file casework.db
  casework -store /tmp/c.db -cases 1000 -seed 7
  casework -store postgres://user:password@localhost/casework -v

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const maxCases = 10_000

// run returns the exit code: 1 if something went wrong, 2 if the flags are.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("casework", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.store, "store", "casework.db", "a SQLite `file`, or a database as postgres://…")
	flags.IntVar(&o.cases, "cases", 300, "how many cases there are, up to 10000; from 15 on, they have all kinds of lives")
	flags.Uint64Var(&o.seed, "seed", 1, "from which it follows what happens to them")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this")
	verbose := flags.Bool("v", false, "log what fails, to standard error")
	flags.Usage = func() {
		_, _ = fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0 || o.cases < 1 || o.cases > maxCases || o.timeout <= 0:
		_, _ = fmt.Fprintln(stderr, "casework: -cases must be from 1 to 10000 and -timeout positive, and there is nothing but flags; see casework --help")
		return 2
	}
	logger := slog.New(slog.DiscardHandler) // the failures here are intended, and part of the report
	if *verbose {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if err := demonstrate(ctx, o, stdout, logger); err != nil {
		_, _ = fmt.Fprintln(stderr, "casework:", err)
		return 1
	}
	return 0
}
