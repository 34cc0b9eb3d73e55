package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
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
	core *server
	url  string
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
	f := &FerretServer{core: core}
	if err := os.Mkdir(core.path("data"), 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("ferretdb: %w", err), f.Close())
	}
	if err := core.start(ctx, f.ready, binary, core.path("data")); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ready waits for the line with the address.
func (f *FerretServer) ready(context.Context) error {
	for line := range strings.Lines(f.core.log()) {
		if address, complete := strings.CutSuffix(line, "\n"); complete && strings.HasPrefix(address, "mongodb://") {
			f.url = address
			return nil
		}
	}
	return errors.New("it has not said its address")
}

// URL is that of the server, without a database.
func (f *FerretServer) URL() string { return f.url }

// Close ends the server and removes its folder. A second Close does nothing.
func (f *FerretServer) Close() error { return f.core.close() }

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
