package gateway

import (
	"os"
	"testing"

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
