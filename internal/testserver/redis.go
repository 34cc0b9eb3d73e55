package testserver

import (
	"bufio"
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
	"time"
)

const (
	redisServer = "redis-server"
	// redisPackage has the server's binary, under another name, and nothing that
	// starts it. The Debian package redis-server is a link to it and a service, which
	// would start on the standard port, now and whenever the machine does.
	redisPackage = "redis-tools"
	redisOther   = "redis-check-rdb"

	// redisDatabases is how many tests of a binary can have a database of their own.
	redisDatabases = 10_000
)

// RedisServer is a private Redis server: a folder, and the process that is started
// on it, stopped and started again. Its methods may be called concurrently. Keep it
// referenced: a server that is garbage is stopped.
type RedisServer struct {
	core     *server
	binary   string
	password string
	port     int
	settings []string
}

// StartRedis starts a private server, in a new folder under parent ("": the
// system's folder for temporary files), which as root the server's user (redis,
// else nobody) must be able to enter. ctx bounds the start, of usually 50
// milliseconds, not the server's life: that ends with [RedisServer.Close] or, at
// the latest, with this process. As root on Debian, a missing Redis is installed,
// without a service of the machine's.
//
// The server listens on a free port of 127.0.0.1 alone, with a random password. It
// has 10,000 databases and, unless the settings say otherwise, an append-only file
// that is synced every second and no snapshots. Settings are lines of a redis.conf,
// such as "appendfsync always" or "maxmemory 64mb", and last for all starts.
func StartRedis(ctx context.Context, parent string, settings ...string) (*RedisServer, error) {
	binary, err := newInstaller().ensure(ctx, redisServer, redisPackage)
	if err != nil {
		return nil, err
	}
	core, err := newServer("redis", parent, []string{"redis", "nobody"}, syscall.SIGTERM, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	r := &RedisServer{core: core, password: rand.Text(), settings: settings}
	if err := r.init(ctx, binary); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// init starts the server on a port that is free.
func (r *RedisServer) init(ctx context.Context, binary string) error {
	// The binary is what it is called: a server, or a checker of files.
	r.binary = r.core.path(redisServer)
	if err := os.Symlink(binary, r.binary); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return onFreePort(func(port int) error {
		r.port = port
		if err := r.configure(); err != nil {
			return err
		}
		return r.Start(ctx)
	})
}

// configure writes the configuration, which holds the password: arguments could be
// seen by everybody on the machine. Of a setting that is there twice the last counts.
func (r *RedisServer) configure() error {
	lines := []string{
		`save ""`,
		"appendonly yes",
		"appendfsync everysec",
	}
	lines = append(lines, r.settings...)
	lines = append(
		lines,
		"bind 127.0.0.1",
		"port "+strconv.Itoa(r.port),
		"protected-mode yes",
		"requirepass "+r.password,
		"databases "+strconv.Itoa(redisDatabases),
		"daemonize no",
		"supervised no",
		`logfile ""`,
		`pidfile ""`,
		"dir "+strconv.Quote(r.core.dir),
	)
	_, err := r.core.write("redis.conf", strings.Join(lines, "\n")+"\n")
	return err
}

// URL is that of the server's database 0. It stays the same when the server is
// stopped and started.
func (r *RedisServer) URL() string { return r.databaseURL(0) }

func (r *RedisServer) databaseURL(database int) string {
	return (&url.URL{
		Scheme: "redis",
		User:   url.UserPassword("", r.password),
		Host:   r.address(),
		Path:   "/" + strconv.Itoa(database),
	}).String()
}

// Start starts the server again after Stop or Kill, on the same port and data,
// and returns once it takes commands, which is after it has loaded its data. It is
// an error if the server runs.
func (r *RedisServer) Start(ctx context.Context) error {
	return r.core.start(ctx, r.ready, r.binary, r.core.path("redis.conf"))
}

// ready gives the server's password, so that it is not another server's.
func (r *RedisServer) ready(ctx context.Context) error { return r.do(ctx, "PING") }

// do gives commands without arguments that would need quoting, and wants a reply of
// the kind that OK and PONG are to each.
func (r *RedisServer) do(ctx context.Context, commands ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	replies := bufio.NewReader(conn)
	for _, command := range append([]string{"AUTH " + r.password}, commands...) {
		if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
			return err
		}
		reply, err := replies.ReadString('\n')
		if err != nil {
			return err
		}
		if !strings.HasPrefix(reply, "+") {
			name, _, _ := strings.Cut(command, " ")
			return fmt.Errorf("redis: %s: %s", name, strings.TrimSpace(reply))
		}
	}
	return nil
}

func (r *RedisServer) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port))
}

// Stop shuts the server down in order: clients are disconnected, data is written
// out. Stopping a stopped server does nothing.
func (r *RedisServer) Stop() error { return r.core.stop(r.core.shutdown) }

// Kill ends the server at once, without writing anything out, as a crash of its
// process would: the next Start reads what is in its append-only file. What the
// operating system had in its cache survives, unlike in a power cut.
func (r *RedisServer) Kill() error { return r.core.stop(r.core.crash) }

// Close ends the server and removes its folder. A second Close does nothing.
func (r *RedisServer) Close() error { return r.core.close() }
