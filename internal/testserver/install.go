package testserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

const installTimeout = 10 * time.Minute // of a package, or of waiting for another process's

// tools are the command-line tools that tests may ask for, and their Debian packages.
var tools = map[string]string{
	"promtool": "prometheus",
	"psql":     "postgresql-client",
	"sqlite3":  "sqlite3",
	"strace":   "strace",
}

// Tool returns the path of a command-line tool: promtool, psql, sqlite3 or strace. As root on
// Debian, a missing one is installed; else it fails the test. -short skips it.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	skipIfShort(tb, "the "+name+" tool")
	pkg, ok := tools[name]
	if !ok {
		tb.Fatalf("testserver does not know the tool %q: add it to its list", name)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), installTimeout)
	defer cancel()
	path, err := newInstaller().ensure(ctx, name, pkg)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// installer finds binaries, and installs Debian packages. Its fields are what
// differs between machines.
type installer struct {
	root        bool
	debian      bool // there is an apt-get
	find        func(binary string) (string, error)
	aptGet      func(ctx context.Context, args ...string) error
	lock        string // a file in a folder that root alone may write to
	clusterConf string // read by the Debian package postgresql when it installs
	policy      string // asked by Debian packages whether they may start their services
}

func newInstaller() installer {
	_, err := exec.LookPath("apt-get")
	return installer{
		root:        os.Geteuid() == 0,
		debian:      err == nil,
		find:        findBinary,
		aptGet:      aptGet,
		lock:        "/run/waybill-testserver.lock",
		clusterConf: "/etc/postgresql-common/createcluster.conf",
		policy:      "/usr/sbin/policy-rc.d",
	}
}

// ensure returns the path of a binary, installing the package that has it if
// we may. Processes that need it at once install it once.
func (i installer) ensure(ctx context.Context, binary, pkg string) (string, error) {
	path, missing := i.find(binary)
	if missing == nil {
		return path, nil
	}
	if !i.debian {
		return "", fmt.Errorf("%s is missing: install it and put it into PATH: %w", binary, missing)
	}
	if !i.root {
		return "", fmt.Errorf("%s is missing: run `sudo apt-get install -y --no-install-recommends %s`: %w", binary, pkg, missing)
	}
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	unlock, err := i.takeLock(ctx)
	if err != nil {
		return "", fmt.Errorf("install %s: %w", pkg, err)
	}
	defer unlock()
	if path, err := i.find(binary); err == nil {
		return path, nil // another process was faster
	}
	slog.Info("testserver: installing a Debian package", "package", pkg)
	if err := i.install(ctx, pkg); err != nil {
		return "", fmt.Errorf("%s is missing: installing it failed: %w", binary, err)
	}
	return i.find(binary)
}

// noServices answers Debian's invoke-rc.d that nothing may be started: only binaries are wanted.
const noServices = "#!/bin/sh\n# made while waybill's tests install a package; remove it if nothing is being installed\nexit 101\n"

func (i installer) install(ctx context.Context, pkg string) (err error) {
	// Else the package starts a server of its own on the standard port.
	if _, err := writeNew(i.clusterConf, "create_main_cluster = false\n", 0o644); err != nil {
		return err
	}
	made, err := writeNew(i.policy, noServices, 0o755)
	if made {
		defer func() { err = errors.Join(err, os.Remove(i.policy)) }()
	}
	if err != nil {
		return err
	}
	if err := i.aptGet(ctx, "update"); err != nil {
		return err
	}
	return i.aptGet(ctx, "install", "-y", "--no-install-recommends", pkg)
}

// takeLock waits for the lock that the processes of this machine share.
func (i installer) takeLock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(i.lock, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() } // nothing was written
	for {
		locked, err := tryLock(f)
		if locked {
			return unlock, nil
		}
		if err == nil {
			err = pause(ctx)
		}
		if err != nil {
			unlock()
			return nil, fmt.Errorf("lock %s: %w", i.lock, err)
		}
	}
}

// writeNew writes a file unless there is one.
func writeNew(path, text string, mode fs.FileMode) (made bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as the rest of the system's
		return false, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(text)
	return true, errors.Join(err, f.Close())
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out[max(0, len(out)-logTail):])
	}
	return nil
}

// findBinary looks in PATH, and then where Debian keeps Postgres, newest first. A Redis
// server goes by two names.
func findBinary(binary string) (string, error) {
	path, err := exec.LookPath(binary)
	if err == nil {
		return path, nil
	}
	if binary == redisServer {
		if path, otherErr := exec.LookPath(redisOther); otherErr == nil {
			return path, nil
		}
	}
	found, globErr := filepath.Glob("/usr/lib/postgresql/*/bin/" + binary)
	if globErr != nil || len(found) == 0 {
		return "", errors.Join(err, globErr)
	}
	return slices.MaxFunc(found, func(a, b string) int {
		return cmp.Compare(postgresVersion(a), postgresVersion(b))
	}), nil
}

// postgresVersion is 15 for /usr/lib/postgresql/15/bin/psql.
func postgresVersion(path string) float64 {
	v, err := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64)
	if err != nil {
		return 0
	}
	return v
}
