package testserver

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const postgresUser = "waybill"

// maxSocketPath is what fits into a sockaddr_un on every system; Postgres does
// not start when its socket's path is longer.
const maxSocketPath = 100

// PostgresServer is a private Postgres server: a folder, and the process that
// is started on it, stopped and started again. Its methods may be called
// concurrently. Keep it referenced: a server that is garbage is stopped.
type PostgresServer struct {
	core     *server
	binary   string
	password string
	port     int
}

// StartPostgres starts a private server, in a new folder under parent ("": the
// system's folder for temporary files), which as root the server's user (postgres,
// else nobody) must be able to enter. ctx bounds the start, of usually 2 seconds,
// not the server's life: that ends with [PostgresServer.Close] or, at the
// latest, with this process. As root on Debian, a missing Postgres is installed.
//
// The server listens on a free port of 127.0.0.1 and on a socket in its folder,
// with a random password. fsync, full_page_writes and synchronous_commit are
// on: what a commit returned for survives a crash. max_connections is 200,
// shared_buffers 128 MB.
func StartPostgres(ctx context.Context, parent string) (*PostgresServer, error) {
	install := newInstaller()
	initdb, err := install.ensure(ctx, "initdb", "postgresql")
	if err != nil {
		return nil, err
	}
	postgres, err := install.ensure(ctx, "postgres", "postgresql")
	if err != nil {
		return nil, err
	}
	core, err := newServer("postgres", parent, []string{"postgres", "nobody"}, syscall.SIGINT, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	p := &PostgresServer{
		core:     core,
		binary:   postgres,
		password: rand.Text(),
	}
	if err := p.init(ctx, initdb); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// init makes the cluster and starts the server on a port that is free.
func (p *PostgresServer) init(ctx context.Context, initdb string) error {
	file, err := p.core.write("password", p.password)
	if err != nil {
		return err
	}
	// An empty cluster that a power cut takes is no loss: it need not be synced.
	err = p.core.run(ctx, initdb, "--pgdata", p.core.path("data"), "--no-sync",
		"--username", postgresUser, "--pwfile", file, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C")
	if err != nil {
		return err
	}
	return onFreePort(func(port int) error {
		p.port = port
		return p.Start(ctx)
	})
}

// URL is that of the server's superuser and its database "postgres". It stays
// the same when the server is stopped and started.
func (p *PostgresServer) URL() string {
	return (&url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(postgresUser, p.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}).String()
}

// Start starts the server again after Stop or Kill, on the same port and data,
// and returns once it takes connections, after a Kill once it has recovered. It
// is an error if the server runs.
func (p *PostgresServer) Start(ctx context.Context) error {
	args := []string{"-D", p.core.path("data")}
	for _, setting := range p.settings() {
		args = append(args, "-c", setting)
	}
	return p.core.start(ctx, p.ready, p.binary, args...)
}

func (p *PostgresServer) settings() []string {
	port, sockets := strconv.Itoa(p.port), p.core.dir
	if len(p.core.path(".s.PGSQL."+port)) > maxSocketPath {
		sockets = ""
	}
	return []string{
		"listen_addresses=127.0.0.1",
		"port=" + port,
		"unix_socket_directories=" + sockets,
		"max_connections=200",
		"shared_buffers=128MB",
		"fsync=on",
		"full_page_writes=on",
		"synchronous_commit=on",
		"timezone=UTC",
		"logging_collector=off",
	}
}

// ready connects with the server's password, so that it is not another server's.
func (p *PostgresServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// Stop shuts the server down in order: transactions are rolled back, clients
// disconnected, data is written out. Stopping a stopped server does nothing.
func (p *PostgresServer) Stop() error { return p.core.stop(p.core.shutdown) }

// Kill ends the server at once, without writing anything out, as a crash of its
// process would: the next Start recovers from the log. What the operating system
// had in its cache survives, unlike in a power cut.
func (p *PostgresServer) Kill() error { return p.core.stop(p.core.crash) }

// Close ends the server and removes its folder. A second Close does nothing.
func (p *PostgresServer) Close() error { return p.core.close() }
