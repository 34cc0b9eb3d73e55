//go:build unix

package soak

import (
	"flag"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// specEnv makes this test binary a dispatcher, or a worker.
const specEnv = "WAYBILL_TEST_PROCESS"

func TestMain(m *testing.M) {
	if text := os.Getenv(specEnv); text != "" {
		os.Exit(program(text))
	}
	if err := flag.Set("test.parallel", "6"); err != nil { // they mostly wait; who says otherwise is heeded
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if unslowed.dir != "" {
			_ = os.RemoveAll(unslowed.dir) // it is in the system's folder for temporary files
		}
		testserver.Exit(code)
	}))
}

// either returns what is for the short form, or what is for the long one.
func either[T any](short, soak T) T {
	if testkit.Long() {
		return soak
	}
	return short
}

// beside has a test run beside others, unless its times are measured for good.
func beside(t *testing.T) {
	if !testkit.Long() {
		t.Parallel()
	}
}

// onEachPair runs a test on pairs of a kind of store and a broker: all there are, or, in the short form, two that
// have each.
func onEachPair(t *testing.T, test func(t *testing.T, kind, broker string)) {
	t.Helper()
	for kind, brokers := range either(
		map[string][]string{sqliteFile: {inProcess}, postgres: {onRedis}},
		map[string][]string{sqliteFile: {inProcess, onRedis}, postgres: {inProcess, onRedis}},
	) {
		for _, broker := range brokers {
			t.Run(kind+" and "+broker, func(t *testing.T) {
				beside(t)
				test(t, kind, broker)
			})
		}
	}
}

// bound is a bound on a time: in the short form, on a machine that is busy with other
// tests, twice as much.
func bound(strict time.Duration) time.Duration { return either(2*strict, strict) }

// patient is with what is only to happen at all.
const patient = 3 * time.Minute
