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

// The programs.
const (
	healthy = "healthy"
	// slow waits before each conclusion and is else as it should be.
	slow = "slow"
	// appendAfterwards commits the window before its event: who dies in between has a
	// window that nobody hears of.
	appendAfterwards = "append afterwards"
	// inboxOutside commits the effect, the next event with it, before the inbox row: who
	// dies in between does it again.
	inboxOutside = "inbox outside"
)

// linger is how long a faulty process stays where a crash would hurt. A healthy one is
// there for less than a millisecond, too short for a few kills to hit.
const linger = 40 * time.Millisecond

// atWork is what a program says when it concludes its first event, or, if it has a
// fault, when it is for the first time where a crash would hurt.
const atWork = "at work"

// runProgram works, and closes windows, until it is killed. It says the ID of each
// window that it has committed.
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

func work(ctx context.Context, program string) error {
	db, err := openDatabase(ctx, os.Getenv(addressEnv))
	if err != nil {
		return err
	}
	tell := sync.OnceFunc(func() { fmt.Println(atWork) })
	switch program {
	case healthy:
		db.events = tellingStore{db.events, tell}
	case slow:
		db.events = slowStore{db.events, tell}
	case inboxOutside:
		db.events = outsideStore{db.events, tell}
	}
	cfg := testConfig()
	// Short, so that a process has its predecessor's partitions before it is killed.
	cfg.leaseTTL = 100 * time.Millisecond
	cfg.logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := newSystem(db.events, cfg)
	if err != nil {
		return err
	}
	return s.during(ctx, func(ctx context.Context) error {
		for n := 0; ; n++ {
			w := window{eventing.NewID(), tenant, goodStation, samples(n)}
			if program == appendAfterwards {
				err = closeInTwo(ctx, s, db.events, w, tell)
			} else {
				err = s.closeWindow(ctx, w)
			}
			if err != nil {
				return err
			}
			fmt.Println(w.id)
			pause(ctx, closeEvery)
		}
	})
}

func closeInTwo(ctx context.Context, s *system, store eventStore, w window, tell func()) error {
	closedAt := now()
	if err := store.InTx(ctx, func(tx *sql.Tx) error { return insertWindow(ctx, tx, w, closedAt) }); err != nil {
		return err
	}
	tell()
	pause(ctx, linger)
	return s.outbox.InTx(ctx, func(tx *sql.Tx) error {
		return s.outbox.Append(ctx, tx, at(w.tenant, w.station, TelemetryWindowClosed{w.id, closedAt, w.wattHours}))
	})
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type tellingStore struct {
	eventStore
	tell func()
}

func (s tellingStore) Succeed(ctx context.Context, r eventing.Success) error {
	s.tell()
	return s.eventStore.Succeed(ctx, r)
}

type slowStore struct {
	eventStore
	tell func()
}

func (s slowStore) Succeed(ctx context.Context, r eventing.Success) error {
	s.tell()
	pause(ctx, linger)
	return s.eventStore.Succeed(ctx, r)
}

type outsideStore struct {
	eventStore
	tell func()
}

func (s outsideStore) Succeed(ctx context.Context, r eventing.Success) error {
	if err := s.InTx(ctx, func(tx *sql.Tx) error { return r.Effect(ctx, tx) }); err != nil {
		return err
	}
	s.tell()
	pause(ctx, linger)
	r.Effect = nil
	return s.eventStore.Succeed(ctx, r)
}
