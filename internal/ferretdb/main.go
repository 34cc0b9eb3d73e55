// Command ferretdb is a server that speaks MongoDB's protocol, for tests: FerretDB,
// embedded, on SQLite. Package testserver builds it, from a copy of FerretDB with the
// corrections that its file ferretdb_patch.go has, and runs it; see there.
//
//	ferretdb FOLDER PORT
//
// It keeps its databases in the folder, listens on a port of 127.0.0.1 without any
// authentication, prints its mongodb:// address as a line of its own, and ends with
// SIGTERM, or when its standard input is closed if that is a pipe.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

// gcPercent trades memory, of which a server for tests needs little, for time.
const gcPercent = 400

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func run(args []string, stdin *os.File, stdout io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if len(args) != 2 {
		return fmt.Errorf("usage: ferretdb FOLDER PORT")
	}
	debug.SetGCPercent(gcPercent)
	folder, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	db, err := ferretdb.New(&ferretdb.Config{
		Listener: ferretdb.ListenerConfig{TCP: "127.0.0.1:" + args[1]},
		Handler:  "sqlite",
		// What is kept is thrown away at the end: no need to wait for the disk.
		SQLiteURL: "file:" + folder + "/?_pragma=synchronous(off)",
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if info, err := stdin.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // until whoever started us has gone
			cancel()
		}()
	}
	if _, err := fmt.Fprintln(stdout, db.MongoDBURI()); err != nil {
		return err
	}
	return db.Run(ctx)
}
