package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// appender applies a load and returns when each event's commit returned, by event ID.
type appender func(ctx context.Context, l load) (map[string]time.Time, error)

// here appends with the dispatcher's own store, which wakes it.
func (w *wakeBench) here() appender {
	outbox := eventing.NewOutbox(w.store, eventing.OutboxConfig{})
	return func(ctx context.Context, l load) (map[string]time.Time, error) { return appendEvenly(ctx, outbox, l) }
}

const (
	appenderCommand = "wake-appender"
	// appenderURLEnv has the database's address: arguments can be seen by everybody
	// on the machine.
	appenderURLEnv = "BENCHPEERS_POSTGRES_URL"
)

// elsewhere appends in another process: this program, run as [runAppender].
func (w *wakeBench) elsewhere() appender {
	return func(ctx context.Context, l load) (map[string]time.Time, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		spec, err := json.Marshal(l)
		if err != nil {
			return nil, fmt.Errorf("encode the load: %w", err)
		}
		cmd := exec.CommandContext(ctx, self, appenderCommand, string(spec)) //nolint:gosec // G204: ourselves
		cmd.Env = append(os.Environ(), appenderURLEnv+"="+w.dbURL)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		var said, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &complaints
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("the appending process: %w\n%s", err, complaints.Bytes())
		}
		var committed map[string]time.Time
		if err := json.Unmarshal(said.Bytes(), &committed); err != nil {
			return nil, fmt.Errorf("what the appending process said: %w", err)
		}
		return committed, nil
	}
}

// runAppender is the other process. It writes the times of the commits as JSON.
func runAppender(ctx context.Context, args []string, out io.Writer, _ *log.Logger) error {
	dbURL := os.Getenv(appenderURLEnv)
	if len(args) != 1 || dbURL == "" {
		return errors.New(appenderCommand + " is a part of wake, which runs it")
	}
	var l load
	if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
		return fmt.Errorf("the load: %w", err)
	}
	pool, err := newPool(ctx, dbURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	committed, err := appendEvenly(ctx, eventing.NewOutbox(pgstore.New(pool), eventing.OutboxConfig{}), l)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(committed)
}

// appendEvenly appends each event when it is due, by as many writers as are free.
func appendEvenly(ctx context.Context, outbox *eventing.Outbox[pgx.Tx], l load) (map[string]time.Time, error) {
	events, err := newEvents(l.Events)
	if err != nil {
		return nil, err
	}
	due := make(chan event, len(events))
	var committed stamps
	g, ctx := errgroup.WithContext(ctx)
	for range writers {
		g.Go(func() error {
			for e := range due {
				if err := outbox.InTx(ctx, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, e.Envelope) }); err != nil {
					return err
				}
				committed.add(e.ID, time.Now())
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(due)
		return evenly(ctx, l.Interval, events, due)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return committed.at, nil
}

// evenly sends each event when it is due, and several where the clock has
// overtaken some.
func evenly(ctx context.Context, interval time.Duration, events []event, due chan<- event) error {
	tick := time.NewTicker(max(interval, time.Millisecond))
	defer tick.Stop()
	start := time.Now()
	for i := 0; i < len(events); {
		for ; i < len(events) && time.Since(start) >= time.Duration(i)*interval; i++ {
			due <- events[i] // it has room for all
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
