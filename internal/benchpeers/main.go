package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
)

const usage = `benchpeers measures Waybill beside its peers, on servers that it starts itself.

  benchpeers peers     dispatch and append, beside a bare loop and other libraries
  benchpeers brokers   publish to Redis and consume from it, beside watermill-redisstream
  benchpeers backlog   dispatch from tables of millions of rows
  benchpeers wake      from commit to broker, and the cost of an idle dispatcher
  benchpeers gateway   the gateway's intake, beside a bare handler

Each takes -h.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, log.New(os.Stderr, "", 0))
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
}

// run runs a subcommand. Results go to out.
func run(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	if len(args) == 0 {
		_, err := io.WriteString(out, usage)
		return err
	}
	commands := map[string]func(context.Context, []string, io.Writer, *log.Logger) error{
		"peers":         runPeers,
		"brokers":       runBrokers,
		"backlog":       runBacklog,
		"wake":          runWake,
		"gateway":       runGateway,
		appenderCommand: runAppender,
		bareCommand:     runBare,
		loaderCommand:   runLoader,
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("there is no command %q\n\n%s", args[0], usage)
	}
	return command(ctx, args[1:], out, progress)
}

// newFlags returns the flags of a subcommand and the one that all have.
func newFlags(name string, progress *log.Logger) (flags *flag.FlagSet, jsonFile *string) {
	flags = flag.NewFlagSet("benchpeers "+name, flag.ContinueOnError)
	flags.SetOutput(progress.Writer())
	return flags, flags.String("json", "", "write the results as JSON to this `file`; - is the standard output, instead of the table")
}

// positive refuses counts that make no benchmark.
func positive(flags *flag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		getter, ok := f.Value.(flag.Getter)
		if !ok {
			return fmt.Errorf("-%s cannot be read", name)
		}
		if n, ok := getter.Get().(int); !ok || n < 1 {
			return fmt.Errorf("-%s is %s; it must be at least 1", name, f.Value)
		}
	}
	return nil
}
