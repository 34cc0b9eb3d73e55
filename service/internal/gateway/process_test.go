package gateway

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const (
	startWithin = 30 * time.Second // on a busy machine, with a log to recover from
	stopWithin  = 30 * time.Second
)

// process is a gateway as a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   string
	ready chan struct{} // closed when it says that it serves, by its first line
	busy  chan struct{} // closed when it says more
	ended chan struct{} // closed when it has ended, with err
	err   error
}

// start starts a command that writes a line to standard output when it serves. It
// does not outlive the test. Its standard error is appended to a file.
func start(t *testing.T, cmd *exec.Cmd, log string) *process {
	t.Helper()
	stderr, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: cmd, log: log, ready: make(chan struct{}), busy: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stdout)
		for n := 1; lines.Scan(); n++ { // until the process ends
			switch n {
			case 1:
				close(p.ready)
			case 2:
				close(p.busy)
			}
		}
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		<-p.ended
	})
	return p
}

// serves waits until the gateway says that it serves.
func (p *process) serves() {
	p.t.Helper()
	p.says(p.ready)
}

// says waits until the gateway has said something.
func (p *process) says(something <-chan struct{}) {
	p.t.Helper()
	select {
	case <-something:
	case <-p.ended:
		p.t.Fatalf("the gateway ended: %v: %s", p.err, p.said())
	case <-time.After(startWithin):
		p.t.Fatalf("the gateway does not say so after %v: %s", startWithin, p.said())
	}
}

// kill ends the process with SIGKILL after a while. It must not have ended before.
func (p *process) kill(after time.Duration) (at time.Time) {
	p.t.Helper()
	select {
	case <-p.ended:
		p.t.Fatalf("the gateway ended before it was killed: %v: %s", p.err, p.said())
	case <-time.After(after):
	}
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatalf("kill the gateway: %v: %s", err, p.said())
	}
	at = time.Now()
	<-p.ended
	return at
}

// terminate ends the process with SIGTERM: it has to drain and end well.
func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
		p.t.Fatalf("the gateway has not stopped %v after SIGTERM: %s", stopWithin, p.said())
	}
	if p.err != nil {
		p.t.Errorf("the gateway stopped with %v: %s", p.err, p.said())
	}
}

// said is the end of what the gateway wrote to standard error.
func (p *process) said() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}
