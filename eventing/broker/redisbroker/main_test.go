package redisbroker_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
)

// These make this test binary another program, on the server whose URL is in the file
// that they name: an argument could be seen by everybody on the machine.
const (
	restartEnv = "WAYBILL_TEST_RESTART_REDIS"
	hoardEnv   = "WAYBILL_TEST_HOARD_MESSAGES"
)

// unracedEnv says that these are the tests without the race detector.
const unracedEnv = "WAYBILL_TEST_UNRACED"

func TestMain(m *testing.M) {
	for env, program := range map[string]func(redisURL string) error{restartEnv: restart, hoardEnv: hoard} {
		if file := os.Getenv(env); file != "" {
			redisURL, err := os.ReadFile(file)
			if err == nil {
				err = program(string(redisURL))
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	goleak.VerifyTestMain(m,
		// The stock subscriber, which some tests read with, sleeps on for a while when closed.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream.(*Subscriber).read"),
		// Watermill's suite leaves behind who gathers what a test has published.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/pubsub/tests.TestReconnect.func2"),
		// It multiplies subscribers, and stops reading from them.
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func2"),
		goleak.IgnoreAnyFunction("github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe.func3"),
		goleak.Cleanup(testserver.Exit))
}
