package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is this binary's server of one kind, started by the first test that
// asks for it. A start that failed is not tried again: every test says why.
type shared[S interface{ Close() error }] struct {
	start func(context.Context) (S, error)

	mu      sync.Mutex
	started bool
	server  S
	err     error
}

func (s *shared[S]) get() (S, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		s.started = true
		// Not the context of the test that happens to be first.
		ctx, cancel := context.WithTimeout(context.Background(), installTimeout+startTimeout)
		defer cancel()
		s.server, s.err = s.start(ctx)
	}
	return s.server, s.err
}

func (s *shared[S]) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.err != nil {
		return nil
	}
	s.err = errClosed
	return s.server.Close()
}

var sharedPostgres = shared[*PostgresServer]{start: func(ctx context.Context) (*PostgresServer, error) {
	return StartPostgres(ctx, "")
}}

var sharedRedis = shared[*RedisServer]{start: func(ctx context.Context) (*RedisServer, error) {
	return StartRedis(ctx, "")
}}

// Main runs a package's tests, stops the servers that they shared, and exits:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
func Main(m *testing.M) { Exit(m.Run()) }

// Exit stops the servers that the tests shared, and exits with the code, or
// with 1 if that is 0 and a server did not stop. It is for packages whose
// TestMain does more:
//
//	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit))
func Exit(code int) {
	if err := errors.Join(dropKept(), sharedPostgres.close(), sharedRedis.close(), sharedFerret.close()); err != nil {
		fmt.Fprintln(os.Stderr, "testserver:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// skipIfShort is the only skip: -short promises to need nothing but Go.
func skipIfShort(tb testing.TB, what string) {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("needs %s; run without -short", what)
	}
}
