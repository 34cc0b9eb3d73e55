//go:build unix

package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is whom a server runs as when we are root, which servers refuse to be.
type account struct{ uid, gid uint32 }

// lookupAccount returns nil, which means oneself, unless we are root and the server
// refuses to be.
func lookupAccount(names []string) (*account, error) {
	if os.Geteuid() != 0 || len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("user id of %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group id of %s: %w", name, err)
		}
		return &account{uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, fmt.Errorf("root needs one of the users %q to run the server as: create one", names)
}

// process is a child in a session of its own, so that a Ctrl-C at the terminal
// reaches us first. It is polled and has no goroutine waiting for it: tests
// that look for leaked goroutines would find that one.
type process struct {
	pid    int
	ended  bool
	status syscall.WaitStatus
}

// startProcess starts cmd, whose streams have to be files, as owner or, if that
// is nil, as oneself.
func startProcess(cmd *exec.Cmd, owner *account) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if owner != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.uid, Gid: owner.gid}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid}
	return p, cmd.Process.Release()
}

// poll reports whether the process has ended, and reaps it.
func (p *process) poll() bool {
	if p.ended {
		return true
	}
	pid, err := syscall.Wait4(p.pid, &p.status, syscall.WNOHANG, nil)
	p.ended = pid == p.pid || errors.Is(err, syscall.ECHILD)
	return p.ended
}

// err is nil if the process ended with exit code 0.
func (p *process) err() error {
	switch {
	case p.status.Signaled():
		return fmt.Errorf("ended by signal %d (%s)", p.status.Signal(), p.status.Signal())
	case p.status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", p.status.ExitStatus())
	}
	return nil
}

// signal reaches the process and those of its children that stayed in its group.
func (p *process) signal(sig syscall.Signal) error {
	if err := syscall.Kill(-p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// tryLock takes the lock on f, held until f is closed or the process dies, and
// reports false if another process has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
