package intake_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }
