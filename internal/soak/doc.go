// Package soak has the long tests of dispatch and consumption as they are run: several
// processes between a database and a broker, some of which, servers included, are
// killed, stopped, shut down or cut off. It has no code but its tests.
//
// Each test has a short form, which is part of all tests, and a long one, with more of
// everything and strict bounds on times, which WAYBILL_SOAK=1 asks for:
//
//	WAYBILL_SOAK=1 go test -race -count 1 -timeout 40m -v ./internal/soak
//
// What a test chooses at random WAYBILL_TEST_SEED repeats, as far as processes that run
// at the same time can be.
//
// A publication's time is that of its entry in a Redis stream. It is compared with the
// clock of the test, so a server that WAYBILL_TEST_REDIS_URL names has to have the
// same one.
package soak
