package gateway

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// smallDisk mounts one of its own for the test, in memory. Only root may do that. -short skips the test.
func smallDisk(t *testing.T, bytes int) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: needs a disk of its own")
	}
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(bytes)); err != nil {
		t.Fatalf("make a disk (run the tests as root, who may mount one, or with -short): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// On a full disk events are refused with 503, and reads go on; nothing that was accepted is lost, and when there
// is room again, the gateway goes on by itself. Also if it is killed and started meanwhile.
func TestCrashOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 64<<20)
	binary, log, secret := buildGateway(t), filepath.Join(t.TempDir(), "log"), newSecret()
	storeURL := "sqlite:" + filepath.Join(dir, "waybill.db")
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(testserver.FreePort(t)))
	run := func() *process {
		cmd := exec.Command(binary, "run")
		cmd.Env = append(os.Environ(), "STORE_URL="+storeURL, "HTTP_ADDR="+address, "HMAC_SECRET="+secret, "ADMIN_TOKEN="+secret,
			"LEASE_TTL="+crashLeaseTTL.String(), "RETRY_BACKOFF_BASE_MS=20", "LOG_LEVEL=warn")
		p := start(t, cmd, log)
		p.Await(p.ready, startWithin)
		return p
	}
	p := run()
	l := startLoad(t, "http://"+address, secret, 200)
	l.goesOn(t, time.Second)
	ballast := filepath.Join(dir, "ballast")
	for round := range 2 {
		refused := l.unavailable.Load()
		fill(t, ballast)
		testkit.Eventually(t, patient, func() error {
			if got := l.unavailable.Load(); got < refused+100 {
				return fmt.Errorf("%d events refused, want 100 more than %d", got, refused)
			}
			return nil
		})
		p.Alive()
		if got := status(t, "http://"+address+"/healthz"); got != http.StatusOK {
			t.Errorf("healthz on a full disk: %d", got)
		}
		if round == 1 {
			p.Kill(0)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if round == 1 {
			p = run()
		}
		l.goesOn(t, time.Second)
	}
	l.stop()
	t.Logf("%d events accepted, %d answers 503", len(l.accepted), l.unavailable.Load())
	accountedEventually(t, openView(t, storeURL), l.accepted)
	p.Signal(syscall.SIGTERM)
	p.EndsWell()
}
