// Package middleware has middleware for Watermill's router.
//
// [Consume] is the composite that takes an event to its conclusion: inbox,
// transaction, retries that survive a restart, dead letters, order. It holds
// the parts in the only order in which they lose nothing. [ConsumeStoreless] is the one for consumers
// without a store: retries in the process, and a poison topic. What is added to the handler
// after a composite runs at every attempt, what is added before it runs once for each
// message of the broker.
//
// # The parts
//
// The others are ordinary middleware, usable on any Watermill router. Their order matters;
// this is the one that neither loses an event nor burns an attempt, the outermost first:
//
//	DeadLetter      publishes what failed for good; must see what Retry has given up
//	Idempotency     drops duplicates; must not remember a dead letter as processed, nor cost an attempt when its store is down
//	Retry           must have the breaker inside, so that it can stop the next attempt
//	CircuitBreaker  waits outside of the attempt's time, or waiting would burn it
//	Timeout         bounds each attempt, not all of them together
//	Recover         makes of a panic an error like others, that all of the above can see
//
// Timeout and Recover may change places, as nothing between them can tell. Those that conclude
// nothing: [Schemas] goes inside DeadLetter, since its errors are permanent; [Correlation]
// anywhere. Those that look on see what is inside of them, so their place is a choice; it goes for
// [Logging], [Tracing].Middleware and [Metrics].Middleware:
//
//	outside of DeadLetter         each message, its waits included; an event that dies is a success
//	between DeadLetter and Retry  the same, but an event that dies is a failure
//	directly inside Retry         each attempt, with the wait for the breaker
//	inside CircuitBreaker         each attempt, without
package middleware
