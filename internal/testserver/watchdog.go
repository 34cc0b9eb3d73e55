package testserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// watchdogScript reads process ids, one per line, until its parent closes the
// pipe, be it by dying. Then it ends the process group that it heard of last,
// if any, and removes the folder. $1: folder, $2: signal number.
//
// The folder is removed twice since a server's children may outlive it by a
// moment, writing.
const watchdogScript = `
group=
while read -r line; do group=$line; done
if [ -n "$group" ]; then
	kill -s "$2" -- "-$group"
	n=0
	while [ $n -lt 50 ] && kill -s 0 -- "-$group"; do n=$((n + 1)); sleep 0.1; done
	kill -s 9 -- "-$group"
fi
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
`

// releaseTimeout is for removing a folder of some hundred megabytes.
const releaseTimeout = 30 * time.Second

// watchdog cleans up behind us if we die. It holds the read end of a pipe of
// which we alone hold the write end: os.Pipe sets close-on-exec.
type watchdog struct {
	proc *process
	pipe *os.File
}

func startWatchdog(dir string, sig syscall.Signal) (*watchdog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", watchdogScript, "watchdog", dir, fmt.Sprint(int(sig)))
	cmd.Dir = "/"
	cmd.Stdin = r
	proc, err := startProcess(cmd, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watchdog: %w", err), w.Close())
	}
	return &watchdog{proc: proc, pipe: w}, nil
}

// watch tells which process group to end; nil means none.
func (w *watchdog) watch(p *process) error {
	line := "\n"
	if p != nil {
		line = fmt.Sprintln(p.pid)
	}
	if _, err := w.pipe.WriteString(line); err != nil {
		return fmt.Errorf("tell the watchdog: %w", err)
	}
	return nil
}

// release has the watchdog clean up now, and returns when it has.
func (w *watchdog) release() error {
	closing := w.pipe.Close()
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return errors.Join(closing, w.proc.wait(ctx))
}
