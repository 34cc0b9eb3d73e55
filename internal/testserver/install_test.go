package testserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var errNotFound = errors.New("not found")

// machine is a pretended Debian machine without the binary.
type machine struct {
	installer
	mu        sync.Mutex
	commands  []string
	installed bool
}

func newMachine(t *testing.T, apt func(command string) error) *machine {
	t.Helper()
	m := new(machine)
	m.installer = installer{
		root:        true,
		debian:      true,
		lock:        filepath.Join(t.TempDir(), "lock"),
		clusterConf: filepath.Join(t.TempDir(), "etc", "createcluster.conf"),
		policy:      filepath.Join(t.TempDir(), "policy-rc.d"),
		find: func(binary string) (string, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !m.installed {
				return "", errNotFound
			}
			return "/bin/" + binary, nil
		},
		aptGet: func(_ context.Context, args ...string) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.commands = append(m.commands, strings.Join(args, " "))
			err := apt(args[0])
			m.installed = err == nil && args[0] == "install"
			return err
		},
	}
	return m
}

func TestInstallsOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t, func(string) error { return nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if path, err := m.ensure(t.Context(), "initdb", "postgresql"); path != "/bin/initdb" || err != nil {
				t.Errorf("ensure: %q, %v", path, err)
			}
		})
	}
	wg.Wait()
	if want := []string{"update", "install -y --no-install-recommends postgresql"}; !slices.Equal(m.commands, want) {
		t.Errorf("apt-get ran %q, want %q", m.commands, want)
	}
	conf, err := os.ReadFile(m.clusterConf)
	if err != nil || string(conf) != "create_main_cluster = false\n" {
		t.Errorf("createcluster.conf: %q, %v", conf, err)
	}
}

// While a package installs it may start no service, and what says so is gone afterwards, unless it
// was there before.
func TestInstallStartsNoService(t *testing.T) {
	t.Parallel()
	for _, there := range []string{"", "#!/bin/sh\nexit 0\n"} {
		var policy string
		var m *machine
		m = newMachine(t, func(command string) error {
			if command != "install" {
				return nil
			}
			info, err := os.Stat(m.policy)
			if err != nil || info.Mode().Perm()&0o111 == 0 {
				t.Errorf("the policy cannot be asked: %v, %v", info, err)
			}
			text, err := os.ReadFile(m.policy)
			policy = string(text)
			return err
		})
		want := noServices
		if there != "" {
			want = there
			if err := os.WriteFile(m.policy, []byte(there), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := m.ensure(t.Context(), "promtool", "prometheus"); err != nil || policy != want {
			t.Errorf("the policy was %q, want %q: %v", policy, want, err)
		}
		left, err := os.ReadFile(m.policy)
		if string(left) != there || there == "" && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q is left, want %q: %v", left, there, err)
		}
	}
}

func TestInstallKeepsClusterConf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "createcluster.conf")
	for i, text := range []string{"first", "second"} {
		if made, err := writeNew(path, text, 0o644); err != nil || made != (i == 0) {
			t.Fatalf("%s: made %v, %v", text, made, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "first" {
		t.Errorf("file: %q, %v, want it untouched", got, err)
	}
}

func TestInstallFails(t *testing.T) {
	t.Parallel()
	noNetwork := errors.New("no network")
	m := newMachine(t, func(string) error { return noNetwork })
	if _, err := m.ensure(t.Context(), "psql", "postgresql-client"); !errors.Is(err, noNetwork) {
		t.Errorf("ensure: %v, want apt-get's error", err)
	}
}

func TestMissingSaysWhatToType(t *testing.T) {
	t.Parallel()
	m := newMachine(t, func(string) error { return errors.New("must not run") })
	m.root = false
	_, err := m.ensure(t.Context(), "psql", "postgresql-client")
	if err == nil || !strings.Contains(err.Error(), "`sudo apt-get install -y --no-install-recommends postgresql-client`") {
		t.Errorf("not root: %v", err)
	}
	m.debian = false
	if _, err := m.ensure(t.Context(), "psql", "postgresql-client"); !errors.Is(err, errNotFound) {
		t.Errorf("not Debian: %v", err)
	}
	if len(m.commands) != 0 {
		t.Errorf("apt-get ran %q", m.commands)
	}
}

func TestLockIsBoundedByContext(t *testing.T) {
	t.Parallel()
	m := newMachine(t, func(string) error { return nil })
	unlock, err := m.takeLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.ensure(ctx, "psql", "postgresql-client"); !errors.Is(err, context.Canceled) {
		t.Errorf("ensure while another installs: %v", err)
	}
}

func TestNewestPostgres(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]float64{
		"/usr/lib/postgresql/9.6/bin/psql": 9.6,
		"/usr/lib/postgresql/15/bin/psql":  15,
		"/usr/lib/postgresql/x/bin/psql":   0,
	} {
		if got := postgresVersion(path); got != want {
			t.Errorf("version of %s: %v, want %v", path, got, want)
		}
	}
}

func TestTool(t *testing.T) {
	t.Parallel()
	for name := range tools {
		if path := Tool(t, name); !filepath.IsAbs(path) {
			t.Errorf("%s is at %q", name, path)
		}
	}
}
