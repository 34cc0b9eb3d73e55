package gateway

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
)

// programEnv makes this test binary one of the programs that its tests run as
// processes of their own.
const programEnv = "WAYBILL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if program := os.Getenv(programEnv); program != "" {
		os.Exit(runProgram(program))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit))
}

// pollEvery is how often tests look for what nobody tells them.
const pollEvery = 10 * time.Millisecond

// eventually looks until problem returns nil, and fails the test with the last
// problem if that takes too long.
func eventually(t testing.TB, within time.Duration, problem func() error) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := problem()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v: %v", within, err)
		case <-tick.C:
		}
	}
}
