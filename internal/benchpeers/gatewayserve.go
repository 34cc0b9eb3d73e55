package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// gatewaySecret is what the client signs with.
const gatewaySecret = "the secret of the benchmark"

// served is a process that takes events.
type served struct {
	url string
	pid int

	cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer // its standard error
}

// Write takes what the process says.
func (s *served) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *served) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startServer starts a command that writes {"url": …} when it serves.
func startServer(ctx context.Context, cmd *exec.Cmd, settings ...string) (*served, error) {
	s := &served{cmd: cmd}
	cmd.Env = append(os.Environ(), settings...)
	cmd.Stderr = s
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w; build the gateway first: make build", cmd.Path, err)
	}
	context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	var first struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(out).Decode(&first); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not say where it serves: %w\n%s", cmd.Path, err, s.said()), s.stop())
	}
	s.url, s.pid = first.URL, cmd.Process.Pid
	return s, nil
}

func (s *served) stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", s.cmd.Path, err)
	}
	kill := time.AfterFunc(20*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%s ended: %w\n%s", s.cmd.Path, err, s.said())
	}
	return nil
}

// startGateway starts the gateway's binary with a command.
func startGateway(command string) func(context.Context, *gatewayBench, string) (*served, error) {
	return func(ctx context.Context, g *gatewayBench, storeURL string) (*served, error) {
		return startServer(ctx, exec.CommandContext(ctx, g.binary, command, "--json"), //nolint:gosec // G204: what the user names
			"STORE_URL="+storeURL, "HTTP_ADDR=127.0.0.1:0", "HMAC_SECRET="+gatewaySecret, "ADMIN_TOKEN="+gatewaySecret, "LOG_LEVEL=warn")
	}
}

// startBare starts this program as [runBare].
func startBare(ctx context.Context, _ *gatewayBench, storeURL string) (*served, error) {
	return startSelf(ctx, storeURL, bareCommand)
}

// startBareWithLedger does so on a database that has the gateway's tables.
func startBareWithLedger(ctx context.Context, g *gatewayBench, storeURL string) (*served, error) {
	migrate := exec.CommandContext(ctx, g.binary, "migrate", "up", "--store-url", storeURL) //nolint:gosec // G204: what the user names
	if out, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s migrate up: %w\n%s", g.binary, err, out)
	}
	return startSelf(ctx, storeURL, bareCommand, bareLedger)
}

func startSelf(ctx context.Context, storeURL string, args ...string) (*served, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return startServer(ctx, exec.CommandContext(ctx, self, args...), appenderURLEnv+"="+storeURL) //nolint:gosec // G204: ourselves
}
