package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 60 * time.Second      // also through crash recovery, on a busy machine
	stopTimeout  = 30 * time.Second      // a shutdown that syncs to a slow disk
	pollInterval = 10 * time.Millisecond // of a child's end and of readiness
	logTail      = 2048                  // bytes of a server's log in an error

	// Ports are taken from below the ranges from which Linux (32768) and others
	// (49152) give outgoing connections theirs. Within, a client that reconnects
	// to a stopped server could connect to itself and so take the server's port.
	firstPort, lastPort = 20000, 32000
)

var (
	errClosed = errors.New("the server is closed")
	errExited = errors.New("it exited while starting")
)

// server is what all servers share: a folder, a process in it, a watchdog
// behind both. Each kind of server adds its commands and its readiness.
type server struct {
	name     string
	dir      string // private, removed by close
	owner    *account
	shutdown syscall.Signal // ends it in order
	crash    syscall.Signal // ends it at once

	mu     sync.Mutex
	proc   *process // nil: not running
	dog    *watchdog
	closed bool
}

// newServer makes the server's folder under parent ("": the system's folder for
// temporary files) and sets the watchdog on it. As root, the folder is given to
// the first of accounts that exists; none: it runs as root.
func newServer(name, parent string, accounts []string, shutdown, crash syscall.Signal) (*server, error) {
	owner, err := lookupAccount(accounts)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "waybill-"+name+"-")
	if err != nil {
		return nil, fmt.Errorf("%s: folder: %w", name, err)
	}
	if owner != nil {
		err = os.Chown(dir, int(owner.uid), int(owner.gid))
	}
	var dog *watchdog
	if err == nil {
		dog, err = startWatchdog(dir, crash)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: folder: %w", name, err), os.RemoveAll(dir))
	}
	return &server{name: name, dir: dir, owner: owner, shutdown: shutdown, crash: crash, dog: dog}, nil
}

func (s *server) path(file string) string { return filepath.Join(s.dir, file) }

// write writes a file that the server's user alone may read, as root too.
func (s *server) write(name, text string) (path string, err error) {
	path = s.path(name)
	if err = os.WriteFile(path, []byte(text), 0o600); err == nil && s.owner != nil {
		err = os.Chown(path, int(s.owner.uid), int(s.owner.gid))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.name, err)
	}
	return path, nil
}

// run runs a command that prepares the server, to its end.
func (s *server) run(ctx context.Context, binary string, args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.spawn(binary, args); err != nil {
		return err
	}
	if err := s.proc.wait(ctx); err != nil {
		return errors.Join(fmt.Errorf("%s: %s: %w\n%s", s.name, binary, err, s.log()), s.halt(syscall.SIGKILL))
	}
	return s.halt(syscall.SIGKILL)
}

// start starts the server and returns once ready says so. On an error nothing
// runs.
func (s *server) start(ctx context.Context, ready func(context.Context) error, binary string, args ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.spawn(binary, args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if s.proc.poll() {
			err = errors.Join(errExited, s.proc.err())
		} else if late := pause(ctx); late == nil {
			continue
		} else {
			err = errors.Join(late, err)
		}
		return errors.Join(fmt.Errorf("start %s: %w\n%s", s.name, err, s.log()), s.halt(s.crash))
	}
}

// spawn needs the lock. The binary's output goes to the file "log".
func (s *server) spawn(binary string, args []string) error {
	if s.closed {
		return fmt.Errorf("start %s: %w", s.name, errClosed)
	}
	if s.proc != nil && !s.proc.poll() {
		return fmt.Errorf("start %s: it runs already: stop it first", s.name)
	}
	log, err := os.OpenFile(s.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	defer log.Close()
	cmd := exec.Command(binary, args...)
	cmd.Dir = s.dir // ours may be closed to the account
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := startProcess(cmd, s.owner)
	if err != nil {
		return fmt.Errorf("start %s (may its user enter %s? else set TMPDIR): %w", s.name, s.dir, err)
	}
	s.proc = proc
	if err := s.dog.watch(proc); err != nil {
		return errors.Join(err, s.halt(syscall.SIGKILL))
	}
	return nil
}

// stop ends the server by a signal. Stopping what does not run does nothing.
func (s *server) stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(sig)
}

// halt needs the lock. What ignores the signal is killed and reported.
func (s *server) halt(sig syscall.Signal) error {
	proc := s.proc
	if proc == nil {
		return nil
	}
	var err error
	if !proc.poll() {
		err = proc.signal(sig)
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		for !proc.poll() && err == nil {
			err = pause(ctx)
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("stop %s: %w\n%s", s.name, err, s.log()), proc.signal(syscall.SIGKILL))
		}
	}
	s.proc = nil
	return errors.Join(err, s.dog.watch(nil))
}

// close ends the server and removes its folder. A second close does nothing.
func (s *server) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	err := s.halt(s.crash) // the data goes too: no need to write it out
	s.closed = true
	return errors.Join(err, s.dog.release(), os.RemoveAll(s.dir))
}

// log returns the end of the server's output.
func (s *server) log() string {
	f, err := os.Open(s.path("log"))
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > logTail {
		_, _ = f.Seek(-logTail, io.SeekEnd) // at worst the log's beginning is shown
	}
	tail, err := io.ReadAll(io.LimitReader(f, logTail))
	if err != nil {
		return err.Error()
	}
	return string(tail)
}

// wait returns when the process has ended, with an error unless its exit code
// is 0, or when the context has.
func (p *process) wait(ctx context.Context) error {
	for !p.poll() {
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return p.err()
}

// pause waits a poll interval.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}

// FreePort returns a port of the loopback interface on which nobody listens, for a
// server that the test starts by itself, and starts again. Clients that find nobody
// there never take it.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// freePort returns a port of the loopback interface on which nobody listens.
// Somebody may a moment later: try again with another.
func freePort() (int, error) {
	var errs error
	for range 20 {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // a port is no secret
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		errs = errors.Join(errs, err)
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", firstPort, lastPort, errs)
}

// onFreePort has a server start on a port that is free.
func onFreePort(start func(port int) error) error {
	var errs error
	for range 3 { // a port may be taken between choosing it and listening
		port, err := freePort()
		if err != nil {
			return err
		}
		if err = start(port); err == nil {
			return nil
		}
		errs = errors.Join(errs, err)
		if !errors.Is(err, errExited) {
			break
		}
	}
	return errs
}
