package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// tick is the unit of /proc's CPU times on every Linux: USER_HZ is 100.
const tick = 10 * time.Millisecond

// stat returns the fields of /proc/PID/stat from the third on.
func stat(pid int) ([][]byte, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name before may hold anything
	if len(fields) < 15 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	return fields, nil
}

// The fields that matter, counted from the third.
const (
	fieldParent = 4 - 3
	fieldUser   = 14 - 3
	fieldSystem = 15 - 3
)

func ticks(fields [][]byte, which ...int) (sum time.Duration) {
	for _, i := range which {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes numbers
		sum += time.Duration(n) * tick
	}
	return sum
}

// cpuOf is what a process has used.
func cpuOf(pid int) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return ticks(fields, fieldUser, fieldSystem), nil
}

// cpuOfFamily is what a process, its children and those that have ended have used.
func cpuOfFamily(parent int) (time.Duration, error) {
	fields, err := stat(parent)
	if err != nil {
		return 0, err
	}
	sum := ticks(fields, fieldUser, fieldSystem, fieldUser+2, fieldSystem+2)
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, p := range processes {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			continue
		}
		fields, err := stat(pid)
		if err != nil {
			continue // it has ended
		}
		if string(fields[fieldParent]) == strconv.Itoa(parent) {
			sum += ticks(fields, fieldUser, fieldSystem)
		}
	}
	return sum, nil
}

// cpuOfMachine is what all processes have used, the kernel and interrupts included.
func cpuOfMachine() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	fields := bytes.Fields(line) // cpu user nice system idle iowait irq softirq steal …
	if len(fields) < 8 {
		return 0, errors.New("/proc/stat has another form")
	}
	return ticks(fields, 1, 2, 3, 6, 7), nil
}

// postmaster is the parent of every process of the server.
func (s *servers) postmaster(ctx context.Context) (pid int, err error) {
	conn, err := pgx.Connect(ctx, s.postgres.URL())
	if err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return 0, fmt.Errorf("postgres: %w", err)
	}
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(fields[fieldParent]))
}
