// Package eventingtest checks that a store keeps the promises of package
// eventing. A store passes if one call of [TestStore] does:
//
//	func TestStore(t *testing.T) {
//		eventingtest.TestStore(t, eventingtest.Backend[*sql.Tx]{
//			Open: func(tb testing.TB) eventingtest.Database[*sql.Tx] { … },
//		})
//	}
//
// The suite drives the real engines (outbox, dispatcher, consumers, dead
// letters, pruner) over the store, step by step: a small broker in memory
// stands between them, a [Clock] is moved by hand, and [Faults] end a process at
// any of the fault points of package eventing. It is split by subject, a file
// each; the message of every assertion names the guarantee that is broken.
//
// [BenchmarkStore] measures the steps that a store bounds. [Clock], [Faults] and
// [CrashEverywhere] are of use to the tests of applications as well.
package eventingtest
