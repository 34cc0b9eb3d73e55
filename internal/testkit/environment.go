package testkit

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	seedEnv = "WAYBILL_TEST_SEED"
	soakEnv = "WAYBILL_SOAK"
)

// Random returns the source of a test's choices, and logs what repeats them.
func Random(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			tb.Fatalf("%s: %v", seedEnv, err)
		}
	}
	tb.Logf("random choices: %s=%d", seedEnv, seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's choices are no secret
}

// Long reports whether tests are to take their long form.
func Long() bool { return os.Getenv(soakEnv) != "" }
