package main

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

const gigabyte = 1 << 30

// diskNeeded is for one table of so many rows of 1 KB with its indexes, the rows
// that are updated, and the log. There is never more than one large table.
func diskNeeded(rows int) uint64 {
	const perRow, log = 2000, 6 * gigabyte
	return uint64(max(0, rows))*perRow + log
}

// checkDisk fails before a table is filled for which there is no room.
func checkDisk(rows int) error {
	dir := os.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	free, need := fs.Bavail*uint64(max(0, fs.Bsize)), diskNeeded(rows)
	if free < need {
		return fmt.Errorf("%s has %d GB free and %d rows need %d GB: set TMPDIR to another disk, or take fewer -rows",
			dir, free/gigabyte, rows, (need+gigabyte-1)/gigabyte)
	}
	return nil
}

// cpuTime is what this process has used, in user and system mode.
func cpuTime() (time.Duration, error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}
