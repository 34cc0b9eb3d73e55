//go:build !unix

package testserver

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Elsewhere than on Unix, tests compile and run with -short.
var errNotUnix = errors.New("test servers need a Unix system: run with -short, or set " + postgresURLEnv + ", " + redisURLEnv + " or " + mongoURLEnv)

type account struct{ uid, gid uint32 }

func lookupAccount([]string) (*account, error) { return nil, errNotUnix }

type process struct{ pid int }

func startProcess(*exec.Cmd, *account) (*process, error) { return nil, errNotUnix }

func (*process) poll() bool { return true }

func (*process) err() error { return errNotUnix }

func (*process) signal(syscall.Signal) error { return errNotUnix }

func tryLock(*os.File) (bool, error) { return false, errNotUnix }
