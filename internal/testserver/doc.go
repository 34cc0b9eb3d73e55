// Package testserver runs the real servers that tests and benchmarks need:
// privately, on free ports of the loopback interface, in temporary folders, as
// root or not.
//
// A test asks for what it needs and gets it to itself:
//
//	func TestMain(m *testing.M) { testserver.Main(m) }
//
//	func TestAppend(t *testing.T) {
//		t.Parallel()
//		pool, err := pgxpool.New(t.Context(), testserver.PostgresURL(t))
//		…
//	}
//
// The tests of one binary share one server process, started by the first that
// asks, and each gets a database of its own. Tests that crash their server take
// [PrivatePostgres] or [PrivateRedis]; programs take [StartPostgres] or [StartRedis].
// In place of MongoDB there is FerretDB: [MongoURL].
//
// No server outlives the process that started it. [Main] stops them; and
// where that cannot happen (SIGKILL, a panic, a timeout, a package without
// TestMain), a watchdog process sees the pipe to its parent close, stops the
// server and removes its folder.
//
// A server that cannot be had fails the test: it never skips one, but under
// -short, which needs nothing but Go. On Debian, root installs what is missing.
package testserver
