package testserver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testkit"
)

// childEnv makes this test binary a program that starts a server and waits to
// be killed.
const childEnv = "WAYBILL_TESTSERVER_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(Exit))
}

func child() int {
	p, err := StartPostgres(context.Background(), os.Getenv(childEnv))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(p.URL())
	_, _ = os.Stdin.Read(make([]byte, 1)) // until we are killed
	return 1
}

func TestKilledProgramLeavesNoServer(t *testing.T) {
	t.Parallel()
	skipIfShort(t, "Postgres")
	parent, err := os.MkdirTemp("", "waybill-child-") // t.TempDir's parents are closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+parent)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	killed := cmd.Process.Kill() // SIGKILL: it can clean nothing up
	if err != nil || killed != nil || cmd.Wait() == nil {
		t.Fatalf("child: read %v, kill %v, said %q", err, killed, line)
	}
	dbURL := strings.TrimSpace(line)
	if !strings.HasPrefix(dbURL, "postgres://") {
		t.Fatalf("child: %s", line)
	}

	testkit.Eventually(t, 20*time.Second, func() error {
		left, err := os.ReadDir(parent)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("the server's folder is left: %s", left[0])
		}
		return err
	})
	// The folder goes last. A server that has lost it refuses every session, and
	// yet is there: ask its port.
	u, err := url.Parse(dbURL)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		t.Errorf("the server still listens on %s; close: %v", u.Host, conn.Close())
	}
}

func TestShortNeedsNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.short", "-test.v", "-test.run", "^(TestDatabasesAreSeparate|TestKillAndStart|TestRedisClose|TestTool)$")
	cmd.Env = []string{"PATH=", "HOME=/nonexistent"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- SKIP: "); n != 4 {
		t.Errorf("%d skips, want 4:\n%s", n, out)
	}
}
