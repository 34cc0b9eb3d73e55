package testkit

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"
)

const (
	stopWithin = 30 * time.Second
	maxLine    = 1 << 20 // bytes of standard output
	logTail    = 4096    // bytes of standard error in a failure
)

// Process is a program that a test runs as a process of its own.
type Process struct {
	tb    testing.TB
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended, with err
	err   error
}

// StartProcess starts a command, which does not outlive the test. Its standard error is
// appended to the file log; hear is called with each line of its standard output, one
// after the other.
func StartProcess(tb testing.TB, cmd *exec.Cmd, log string, hear func(line string)) *Process {
	tb.Helper()
	stderr, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	p := &Process{tb: tb, cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, maxLine)
		for lines.Scan() { // until the process ends
			hear(lines.Text())
		}
		p.err = cmd.Wait()
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended, unless the test has failed
		<-p.ended
	})
	return p
}

// Alive fails the test if the process has ended.
func (p *Process) Alive() {
	p.tb.Helper()
	select {
	case <-p.ended:
		p.tb.Fatalf("the process has ended: %v: %s", p.err, p.Said())
	default:
	}
}

// Await waits until the process, while it lives, has said something, which closes the
// channel.
func (p *Process) Await(something <-chan struct{}, within time.Duration) {
	p.tb.Helper()
	select {
	case <-something:
	case <-p.ended:
		p.Alive()
	case <-time.After(within):
		p.tb.Fatalf("the process has not said so after %v: %s", within, p.Said())
	}
}

// Signal sends the process a signal. It must not have ended before.
func (p *Process) Signal(s os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.tb.Fatalf("send the process %v: %v: %s", s, err, p.Said())
	}
}

// Kill ends the process with SIGKILL after a while, and returns when it is gone. It
// must not have ended before.
func (p *Process) Kill(after time.Duration) {
	p.tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(after):
	}
	p.Alive()
	p.Signal(os.Kill)
	<-p.ended
}

// EndsWell waits until the process has ended, after a signal to do so. Its exit code
// has to be 0.
func (p *Process) EndsWell() {
	p.tb.Helper()
	select {
	case <-p.ended:
	case <-time.After(stopWithin):
		p.tb.Fatalf("the process has not ended within %v: %s", stopWithin, p.Said())
	}
	if p.err != nil {
		p.tb.Errorf("the process ended with %v: %s", p.err, p.Said())
	}
}

// Said is the end of what is in the file for standard error.
func (p *Process) Said() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-logTail):])
}
