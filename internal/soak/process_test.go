//go:build unix

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

const startWithin = 30 * time.Second // on a busy machine

// process is a dispatcher or a worker as a process of its own.
type process struct {
	*testkit.Process
	t    testing.TB
	spec spec

	mu   sync.Mutex
	told []report
}

// start starts this test binary as what the spec says, and returns when it serves. It
// outlives neither the test nor, however that ends, this process. Its standard error is
// appended to a file.
func start(t testing.TB, s spec, log string) *process {
	t.Helper()
	self, err := os.Executable()
	if s.Unslowed {
		self, err = unslowed.binary()
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), specEnv+"="+string(text), "GORACE=halt_on_error=1")
	release := func() error { return nil }
	t.Cleanup(func() { // when the process has ended
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	p := &process{t: t, spec: s}
	p.Process = testkit.StartProcess(t, cmd, log, p.hear)
	watched, err := watch(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	release = watched
	p.waitFor(startWithin, func(r report) bool { return r.Serving })
	return p
}

// unslowed is this test binary without the race detector, which makes a process
// several times as slow: for what is fast or not.
var unslowed builder

type builder struct {
	once sync.Once
	dir  string
	err  error
}

func (b *builder) binary() (string, error) {
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "waybill-soak-"); b.err != nil {
			return
		}
		if out, err := exec.Command("go", "test", "-c", "-race=false", "-o", b.dir+"/soak", ".").CombinedOutput(); err != nil {
			b.err = fmt.Errorf("build the program: %w: %s", err, out)
		}
	})
	return b.dir + "/soak", b.err
}

// hear keeps what the process says.
func (p *process) hear(line string) {
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		p.t.Errorf("a process says %q: %v", line, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, r)
}

// watch has a shell end the process when this one has ended without a call of release:
// it sees its standard input end. A process that is stopped could not see that itself.
func watch(pid int) (release func() error, err error) {
	cmd := exec.Command("sh", "-c", `read -r released || kill -s KILL "$1"`, "watchdog", strconv.Itoa(pid))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what the terminal sends is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_, err := pipe.Write([]byte("\n"))
		return errors.Join(err, cmd.Wait())
	}, nil
}

// reports returns what the process has said so far.
func (p *process) reports() []report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

// waitFor waits until the process has said something.
func (p *process) waitFor(within time.Duration, something func(report) bool) report {
	p.t.Helper()
	var found report
	testkit.Eventually(p.t, within, func() error {
		all := p.reports()
		if i := slices.IndexFunc(all, something); i >= 0 {
			found = all[i]
			return nil
		}
		p.Alive()
		return fmt.Errorf("the process has not said so: %s", p.Said())
	})
	return found
}

// kill ends the process with SIGKILL, and returns when that began.
func (p *process) kill() (at time.Time) {
	p.t.Helper()
	at = time.Now()
	p.Kill(0)
	return at
}

// terminate ends processes with SIGTERM: they have to end well.
func terminate(processes ...*process) {
	for _, p := range processes {
		p.t.Helper()
		p.Signal(syscall.SIGTERM)
	}
	for _, p := range processes {
		p.EndsWell()
	}
}
