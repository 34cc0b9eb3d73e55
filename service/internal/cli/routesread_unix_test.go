//go:build unix

package cli_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/service/internal/cli"
)

// Nobody writes to the pipe, so that whoever opens it waits.
func TestRoutesOfAPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	for _, args := range []string{"lint " + pipe, "explain " + pipe + " events.ndjson", "diff routes.yaml " + pipe + " --events events.ndjson", "test routes.yaml " + pipe} {
		if r := waybill().routes(t, strings.Fields(args)...); r.code != 1 || !strings.Contains(r.stderr, "pipe is not a file, but a pipe: save") {
			t.Errorf("%s: %+v", args, r)
		}
	}
	reading := []string{
		"explain testdata/routes/routes.yaml " + pipe,
		"diff testdata/routes/routes.yaml testdata/routes/new.yaml --events " + pipe,
		"explain testdata/routes/routes.yaml testdata/routes/misspelt.json --lookups " + pipe,
	}
	for _, args := range reading {
		ctx, cancel := context.WithCancelCause(t.Context())
		opened := make(chan int)
		go func() {
			w, _ := syscall.Open(pipe, syscall.O_WRONLY, 0) // waits for who reads
			cancel(errors.New("interrupted"))
			opened <- w
		}()
		r := waybill().start(ctx, cli.Program{Args: append([]string{"routes"}, strings.Fields(args)...)})
		if r.code != 1 || r.stderr != "waybill: interrupted\n" {
			t.Errorf("%s: %+v", args, r)
		}
		must(t, syscall.Close(<-opened))
	}
	for _, args := range reading {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("interrupted"))
		defer cancel()
		r := waybill().start(ctx, cli.Program{Args: append([]string{"routes"}, strings.Fields(args)...)})
		if r.code != 1 || r.stderr != "waybill: interrupted\n" {
			t.Errorf("%s: %+v", args, r)
		}
	}
	w, err := syscall.Open(pipe, syscall.O_RDWR, 0) // lets go of those that were left waiting
	must(t, err)
	t.Cleanup(func() { must(t, syscall.Close(w)) })
}
