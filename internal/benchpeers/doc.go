// Command benchpeers measures Waybill beside what one would use instead: a bare
// loop, Watermill's forwarder, River and oagudo/outbox; and its Redis publisher and
// subscriber beside Watermill's. It also measures the
// dispatcher on large tables, and how soon it sees a commit.
//
// It starts a Postgres (fsync on) and a Redis of its own, and removes them when
// it ends, be it by Ctrl-C. How to read the figures: docs/benchmarks.md.
//
// It is a module of its own, so that nobody who uses the library gets the peers.
package main
