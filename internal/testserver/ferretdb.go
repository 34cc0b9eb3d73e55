package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// mongoURLEnv names a server to use instead of a private one.
const mongoURLEnv = "WAYBILL_TEST_MONGO_URL"

// FerretServer is a private server that speaks MongoDB's protocol: FerretDB on SQLite,
// corrected where it does not do what MongoDB does (see ferretdb_patch.go). MongoDB itself
// is in no package of Debian, nor in a Go module.
type FerretServer struct {
	core   *server
	binary string
	port   int
}

// StartFerret starts a private server, in a new folder under parent ("": the system's
// folder for temporary files). ctx bounds the start, not the server's life: that ends with
// [FerretServer.Close] or, at the latest, with this process. For the first time on a machine the server
// is built, which takes a minute or two.
//
// The server listens on a free port of 127.0.0.1, and asks for no password. What it has
// written survives the death of its process, but not that of the machine.
func StartFerret(ctx context.Context, parent string) (*FerretServer, error) {
	binary, err := buildFerret(ctx)
	if err != nil {
		return nil, err
	}
	core, err := newServer("ferretdb", parent, nil, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	f := &FerretServer{core: core, binary: binary}
	if err := os.Mkdir(core.path("data"), 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("ferretdb: %w", err), f.Close())
	}
	if err := onFreePort(func(port int) error {
		f.port = port
		return f.Start(ctx)
	}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Start starts the server again after Stop or Kill, on the same port and data, and returns once it takes
// connections. It is an error if the server runs.
func (f *FerretServer) Start(ctx context.Context) error {
	return f.core.start(ctx, f.ready, f.binary, f.core.path("data"), strconv.Itoa(f.port))
}

func (f *FerretServer) ready(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.address())
	if err != nil {
		return err
	}
	return conn.Close()
}

func (f *FerretServer) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port)) }

// Stop shuts the server down in order. Stopping a stopped server does nothing.
func (f *FerretServer) Stop() error { return f.core.stop(f.core.shutdown) }

// Kill ends the server at once, as a crash of its process would.
func (f *FerretServer) Kill() error { return f.core.stop(f.core.crash) }

// URL is that of the server, without a database. It stays the same when the server is stopped and started.
func (f *FerretServer) URL() string { return "mongodb://" + f.address() + "/" }

// Close ends the server and removes its folder. A second Close does nothing.
func (f *FerretServer) Close() error { return f.core.close() }

// PrivateFerret starts a server for this test alone, which it may stop, kill
// and start again; it is gone when the test ends. -short skips the test.
func PrivateFerret(tb testing.TB) *FerretServer {
	tb.Helper()
	skipIfShort(tb, "FerretDB")
	server, err := StartFerret(tb.Context(), "")
	if err != nil {
		tb.Fatalf("ferretdb for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("close the test's ferretdb: %v", err)
		}
	})
	return server
}

var sharedFerret = shared[*FerretServer]{start: func(ctx context.Context) (*FerretServer, error) {
	return StartFerret(ctx, "")
}}

// MongoURL returns the URL of a new database for this test alone, whose name is the URL's
// path. It is on the server that the tests of this binary share or, if
// WAYBILL_TEST_MONGO_URL is set, on that one (MongoDB, for example). There, nothing
// is touched but the new database, named waybill_test_…, which it is up to the test to drop.
//
// A server that cannot be had fails the test; -short skips it.
func MongoURL(tb testing.TB) string {
	tb.Helper()
	skipIfShort(tb, "FerretDB")
	server := os.Getenv(mongoURLEnv)
	if server == "" {
		shared, err := sharedFerret.get()
		if err != nil {
			tb.Fatalf("a mongodb for the tests (set %s to use another): %v", mongoURLEnv, err)
		}
		server = shared.URL()
	}
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "mongodb" && u.Scheme != "mongodb+srv") {
		// The URL itself may hold a password: it is not shown, nor is err.
		tb.Fatalf("%s is not of the form mongodb://user:password@host:port/", mongoURLEnv)
	}
	u.Path = "/waybill_test_" + strings.ToLower(rand.Text())
	return u.String()
}
