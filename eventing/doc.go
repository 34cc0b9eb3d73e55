// Package eventing takes events from the database of those who write them to those
// who need them, and loses none on the way.
//
// An event's life, in the order of the files:
//
//   - append (event.go, codec.go, outbox.go): [Outbox.Append] completes and checks the
//     event and inserts it in the caller's own transaction.
//   - dispatch (dispatcher.go, lease.go, pass.go, lookout.go, adopt.go, route.go,
//     expedite.go, publish.go, settle.go, complete.go): a [Dispatcher] claims rows of the
//     partitions that it has leased, asks a routing table where they go, publishes them and
//     settles them. Rows that somebody wrote by hand are adopted first.
//   - consume (consumer.go, delivery.go): a [Consumer] takes a message from the broker.
//     [Decide] says what becomes of it: it runs, it is parked behind an earlier event of its
//     key, or it has been dealt with already.
//   - conclude (conclude.go, policy.go, errors.go): the handler's effect and the record that
//     the event is processed commit together. A failure commits too: as a retry that is due
//     later, or as a dead letter.
//   - redeliver (redeliver.go): what is in trouble runs again from the consumer's store.
//   - dead letters (deadletter.go): they are listed, reviewed, replayed, discarded.
//   - prune and requeue (prune.go, requeue.go): what nothing can reach any more goes; what a
//     broker lost is sent again.
//
// # State
//
// Two kinds of state, each with one job. The outbox, in the database of whoever
// appends, holds what has yet to be sent. The consumer's store holds the inbox (a
// row for each event that it has processed, written with the effect) and the
// deliveries in trouble: retrying, parked or dead. An event in no trouble costs its
// consumer one row.
//
// # Guarantees
//
// An event of a transaction that committed is delivered at least once to each
// consumer that it is routed to; one of a transaction that did not is never seen. A
// handler's effect through the transaction that it is given happens exactly once. An
// ordered consumer sees the events of a key in the order of their appending, if the
// writers of the key are serialised; while one of them is in trouble, the later ones
// wait for that consumer, and nobody else does. This holds when processes die, at any
// of the points that [FaultPoint] names.
//
// # Stores
//
// Stores implement the small interfaces that are declared where they are used:
// [OutboxStore], [DispatchStore], [ConsumerStore], [DeadLetterStore], [PruneStore],
// [AdminStore]. Their methods are the steps above, each of them atomic. Package
// eventingtest has the suite that a store has to pass.
package eventing
