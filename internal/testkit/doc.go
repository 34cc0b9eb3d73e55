// Package testkit has what the tests of several packages share and that needs nothing
// but Go: waiting for what nobody tells, random choices that can be repeated, programs
// that run as processes of their own and are killed, and a connection that hangs, breaks
// or is slow.
//
// Two variables of the environment steer it: WAYBILL_TEST_SEED repeats a test's random
// choices ([Random]), and WAYBILL_SOAK=1 asks for the long form of tests that have one
// ([Long]).
package testkit
