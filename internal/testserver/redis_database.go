package testserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// redisURLEnv names a server to use instead of a private one.
const redisURLEnv = "WAYBILL_TEST_REDIS_URL"

// redisTaken counts the databases that tests were given.
var redisTaken atomic.Int64

// RedisURL returns the URL of a Redis database, empty and for this test alone, and
// emptied when the test ends. It is on the server that the tests of this binary
// share, as Pub/Sub channels and scripts are.
//
// If WAYBILL_TEST_REDIS_URL is set, it is returned as it is, and nothing there is
// emptied: its tests share one database. So name keys after the test, or at random,
// and delete them.
//
// A server that cannot be had fails the test; -short skips it.
func RedisURL(tb testing.TB) string {
	tb.Helper()
	skipIfShort(tb, "Redis")
	if given := os.Getenv(redisURLEnv); given != "" {
		if err := checkRedisURL(given); err != nil {
			tb.Fatal(err)
		}
		return given
	}
	server, err := sharedRedis.get()
	if err != nil {
		tb.Fatalf("redis for the tests (set %s to use another): %v", redisURLEnv, err)
	}
	database := int(redisTaken.Add(1))
	if database >= redisDatabases {
		tb.Fatalf("the %d databases of the shared redis are taken: use PrivateRedis", redisDatabases-1)
	}
	tb.Cleanup(func() {
		err := server.do(context.WithoutCancel(tb.Context()), "SELECT "+strconv.Itoa(database), "FLUSHDB")
		if err != nil {
			tb.Errorf("empty the test's redis database: %v", err)
		}
	})
	return server.databaseURL(database)
}

// PrivateRedis starts a server for this test alone, with settings as those of
// [StartRedis], which it may stop, kill and start again; it is gone when the test
// ends. -short skips the test.
func PrivateRedis(tb testing.TB, settings ...string) *RedisServer {
	tb.Helper()
	skipIfShort(tb, "Redis")
	server, err := StartRedis(tb.Context(), "", settings...)
	if err != nil {
		tb.Fatalf("redis for the test: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("close the test's redis: %v", err)
		}
	})
	return server
}

func checkRedisURL(given string) error {
	if u, err := url.Parse(given); err != nil || (u.Scheme != "redis" && u.Scheme != "rediss") {
		// The URL itself holds a password: it is not shown, nor is err.
		return fmt.Errorf("%s is not of the form redis://user:password@host:port/database", redisURLEnv)
	}
	return nil
}
