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
	"strings"
	"syscall"
	"time"
)

const usage = `casework plays the lives of some hundred cases, in which things fail, has an operator look after
those that are frozen, and audits the database. It exits with 0 only if, in the end, each case has made its
transitions once and in order, every event is in the log, and nothing is under way.

Run it again on the same database, and the story begins some weeks later; but run one at a time there: each has a clock
of its own.

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

// lines makes one line of an error that has several.
var lines = strings.NewReplacer("\n\t", " ", "\n", "; ")

// run returns the exit code: 1 if something went wrong, 2 if the flags are.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("casework", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // one line says what is wrong
	flags.StringVar(&o.store, "store", "casework.db", "a SQLite `file`, or a database as postgres://…")
	flags.IntVar(&o.cases, "cases", 300, "how many cases there are, up to 10000; from 15 on, they have all kinds of lives")
	flags.Uint64Var(&o.seed, "seed", 1, "from which it follows what happens to them")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this")
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
	case o.cases < 1 || o.cases > maxCases:
		err = fmt.Errorf("-cases must be from 1 to %d", maxCases)
	case o.timeout <= 0:
		err = errors.New("-timeout must be positive")
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "casework: %v; see casework --help\n", err)
		return 2
	}
	logger := slog.New(slog.DiscardHandler) // the failures here are intended, and part of the report
	if *verbose {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	if err := demonstrate(ctx, o, stdout, logger); err != nil {
		_, _ = fmt.Fprintln(stderr, "casework:", lines.Replace(err.Error()))
		return 1
	}
	return 0
}
