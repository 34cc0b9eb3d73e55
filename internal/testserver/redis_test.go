package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// redisDo gives a command over a connection of its own.
func redisDo(t *testing.T, redisURL string, args ...any) (string, error) {
	t.Helper()
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer client.Close()
	return client.Do(t.Context(), args...).Text()
}

func mustRedisDo(t *testing.T, redisURL string, args ...any) string {
	t.Helper()
	reply, err := redisDo(t, redisURL, args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func TestRedisDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	skipIfShort(t, "Redis")
	var first string
	t.Run("parallel", func(t *testing.T) {
		for i := range 4 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				redisURL := RedisURL(t)
				if i == 0 {
					first = redisURL
				}
				mustRedisDo(t, redisURL, "SET", "mine", i, "NX") // an error where there is one
				if got, want := mustRedisDo(t, redisURL, "GET", "mine"), fmt.Sprint(i); got != want {
					t.Errorf("mine is %q, want %q", got, want)
				}
			})
		}
	})
	if got, err := redisDo(t, first, "GET", "mine"); !errors.Is(err, redis.Nil) {
		t.Errorf("after the test that had the database: %q, %v, want nothing", got, err)
	}
}

func TestGivenRedis(t *testing.T) { // sets the environment: not parallel
	server := PrivateRedis(t)
	mustRedisDo(t, server.URL(), "SET", "precious", "yes")
	t.Setenv(redisURLEnv, server.URL())
	t.Run("uses it", func(t *testing.T) {
		if got := mustRedisDo(t, RedisURL(t), "GET", "precious"); got != "yes" {
			t.Errorf("precious is %q", got)
		}
	})
	if got := mustRedisDo(t, server.URL(), "GET", "precious"); got != "yes" {
		t.Errorf("afterwards precious is %q", got)
	}
	for _, given := range []string{"localhost:6379", "http://hush@x/", "redis://u:hush@x:port/"} {
		if err := checkRedisURL(given); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), redisURLEnv) {
			t.Errorf("%s: %v", given, err)
		}
	}
}

func TestRedisKillAndStart(t *testing.T) {
	t.Parallel()
	server := PrivateRedis(t)
	for name, stop := range map[string]func() error{"stop": server.Stop, "kill": server.Kill} {
		mustRedisDo(t, server.URL(), "SET", name, "kept")
		if err := errors.Join(stop(), stop()); err != nil { // the second does nothing
			t.Fatal(err)
		}
		if _, err := redisDo(t, server.URL(), "PING"); err == nil {
			t.Fatalf("after %s the server takes commands", name)
		}
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := server.Start(t.Context()); err == nil {
			t.Error("a running server was started")
		}
		if got := mustRedisDo(t, server.URL(), "GET", name); got != "kept" {
			t.Errorf("%s: %q, want kept", name, got)
		}
	}
}

func TestRedisSettings(t *testing.T) {
	t.Parallel()
	server := PrivateRedis(t, "appendfsync always", "save 3600 7", "maxmemory 64mb", "port 6379", "bind 0.0.0.0", "daemonize yes")
	config := func(name string) string {
		options, err := redis.ParseURL(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		defer client.Close()
		values, err := client.ConfigGet(t.Context(), name).Result()
		if err != nil {
			t.Fatal(err)
		}
		return values[name]
	}
	for name, want := range map[string]string{
		"appendfsync": "always", "save": "3600 7", "maxmemory": "67108864", // as asked
		"appendonly": "yes",                                                                                                          // by default
		"port":       fmt.Sprint(server.port), "bind": "127.0.0.1", "daemonize": "no", "protected-mode": "yes", "databases": "10000", // always
	} {
		if got := config(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestRedisDefaults(t *testing.T) {
	t.Parallel()
	conf, err := os.ReadFile(PrivateRedis(t).core.path("redis.conf"))
	if err != nil || !strings.HasPrefix(string(conf), "save \"\"\nappendonly yes\nappendfsync everysec\nbind 127.0.0.1\n") {
		t.Errorf("redis.conf: %v\n%s", err, conf)
	}
}

func TestRedisPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	server := PrivateRedis(t)
	for _, password := range []string{"", ":wrong@"} {
		_, err := redisDo(t, strings.Replace(server.URL(), ":"+server.password+"@", password, 1), "PING")
		if err == nil || !strings.Contains(err.Error(), "NOAUTH") && !strings.Contains(err.Error(), "WRONGPASS") {
			t.Errorf("with %q: %v", password, err)
		}
	}
}

func TestRedisClose(t *testing.T) {
	t.Parallel()
	server := PrivateRedis(t)
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.core.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder after Close: %v", err)
	}
	if conn, err := net.Dial("tcp", server.address()); err == nil {
		t.Errorf("the server still listens on %s; close: %v", server.address(), conn.Close())
	}
	if err := server.Start(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Start after Close: %v", err)
	}
}

func TestRedisFailedStartSaysWhy(t *testing.T) {
	t.Parallel()
	skipIfShort(t, "Redis")
	_, err := StartRedis(t.Context(), "", "no-such-setting 1")
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("StartRedis: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := StartRedis(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("StartRedis with an ended context: %v", err)
	}
}

// TestRedisByOtherName starts what the package without a service has.
func TestRedisByOtherName(t *testing.T) { // sets the environment: not parallel
	skipIfShort(t, "Redis")
	binary, err := newInstaller().ensure(t.Context(), redisServer, redisPackage)
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = filepath.EvalSymlinks(binary); err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	path, err := os.MkdirTemp("", "waybill-path-") // t.TempDir's parents are closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{redisOther: binary, "sh": shell, "rm": "/bin/rm", "sleep": "/bin/sleep"} {
		if err := os.Symlink(target, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", path)
	if found, err := findBinary(redisServer); err != nil || filepath.Base(found) != redisOther {
		t.Fatalf("found %q, %v", found, err)
	}
	PrivateRedis(t)
}
