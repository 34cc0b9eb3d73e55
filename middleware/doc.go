// Package middleware has middleware for Watermill's router.
//
// [Consume] is the composite that takes an event to its conclusion: inbox,
// transaction, retries that survive a restart, dead letters, order. It holds
// the parts in the only order in which they lose nothing. The others are
// ordinary middleware, usable on any Watermill router, with or without Consume:
// what is added to the handler after Consume runs at every attempt, what is added
// before it runs once for each message of the broker.
package middleware
