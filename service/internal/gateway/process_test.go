package gateway

import (
	"os/exec"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

const startWithin = 30 * time.Second // on a busy machine, with a log to recover from

// process is a gateway as a process of its own.
type process struct {
	*testkit.Process
	ready chan struct{} // closed when it says that it serves, by its first line
	busy  chan struct{} // closed when it says more
}

// start starts a command that writes a line to standard output when it serves. It
// does not outlive the test. Its standard error is appended to a file.
func start(t *testing.T, cmd *exec.Cmd, log string) *process {
	t.Helper()
	p := &process{ready: make(chan struct{}), busy: make(chan struct{})}
	lines := 0
	p.Process = testkit.StartProcess(t, cmd, log, func(string) {
		switch lines++; lines {
		case 1:
			close(p.ready)
		case 2:
			close(p.busy)
		}
	})
	return p
}
