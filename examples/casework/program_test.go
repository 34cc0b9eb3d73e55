package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// This test binary is also the program that its tests run as a process, on the
// database of addressEnv.
const (
	programEnv = "WAYBILL_TEST_PROGRAM"
	addressEnv = "WAYBILL_TEST_ADDRESS"
)

// The programs: workers, as many as there are processes.
const (
	healthy = "healthy"
	// slow waits before each conclusion of the workflow engine, and is else as it should be.
	slow = "slow"
	// outside commits the workflow engine's effect before the inbox row: who dies in between
	// does it again.
	outside = "outside"
)

// linger is how long a slow or faulty process stays where a crash would hurt.
const linger = 40 * time.Millisecond

// atWork is what a program says when its workflow engine concludes its first event, or, if it has a
// fault, when it is for the first time where a crash would hurt.
const atWork = "at work"

// runProgram works until it is killed, or the test has ended.
func runProgram(program string) (exitCode int) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test has ended
	}()
	if err := work(ctx, program); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

// crashLease is short, so that a process has its predecessor's partitions before it is killed.
const crashLease = 200 * time.Millisecond

func work(ctx context.Context, program string) error {
	db, err := openDatabase(ctx, os.Getenv(addressEnv))
	if err != nil {
		return err
	}
	db.events = workerStore{db.events, program, sync.OnceFunc(func() { fmt.Println(atWork) })}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := newSystem(db, config{leaseTTL: crashLease, poll: demoPoll, logger: logger})
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// workerStore tells of the workflow engine's conclusions, slows them down, or has them go wrong.
type workerStore struct {
	eventStore
	program string
	tell    func()
}

func (s workerStore) Succeed(ctx context.Context, r eventing.Success) error {
	if r.Consumer != workflowEngine {
		return s.eventStore.Succeed(ctx, r)
	}
	if s.program == outside {
		if err := s.InTx(ctx, func(tx *sql.Tx) error { return r.Effect(ctx, tx) }); err != nil {
			return err
		}
		r.Effect = nil
	}
	s.tell()
	if s.program != healthy {
		select {
		case <-ctx.Done():
		case <-time.After(linger):
		}
	}
	return s.eventStore.Succeed(ctx, r)
}
