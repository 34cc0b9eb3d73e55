// Package mongostore keeps outbox, inbox and dead letters in MongoDB, without transactions of the
// database: also on a standalone server, and on what speaks its protocol.
//
// # One document decides
//
// A write of one document is all that is atomic, so of each step one document decides whether it has
// happened: its commit document. What follows from that in other documents is written down in it, and
// then done; each of these writes changes nothing when it comes twice, or late. If the process dies in between,
// whoever comes next goes on: the next one who needs the document, or a dispatcher or a pruner within seconds.
//
//   - Of whatever happens to an event at a consumer (it is claimed, succeeds, is retried, parked, dies, is
//     replayed, discarded, forced), the document of the two in consumer_inbox decides. It has the inbox row and the
//     delivery in one. It is changed on the condition that nobody has since it was read.
//   - Of a transaction that appends a single event, and nothing else, that is the row in event_outbox; of any other,
//     a document of event_commits, which lasts for as long as it takes to write out what it has.
//   - Of a batch of events, a document of event_commits: the inbox documents refer to it until then.
//   - Of a hand-written row, that row.
//
// # Transactions
//
// A [Tx] gathers what is appended, and documents of the application's: [Tx.Insert]. They become part of the
// commit document, so they are written exactly once if and only if the step has happened. Nobody sees them before
// that; and whoever looks in the moments after may see some of them and not yet others, of an ordering key never a later one first.
//
// What a handler writes by itself, with a collection of its own, happens at least once, as a mail does: it is there
// also if the handler fails afterwards. Make it an insertion by the event's id, or an update that holds only once.
//
// While a handler runs that is given a [Tx], its event is claimed, so that no other worker runs it, too. If the process
// dies, the event waits until the claim has run out: the handler's timeout, and 5 seconds. Under an ordered consumer's lease it does
// not wait: the next holder of the partition takes over at once.
//
// # Less than elsewhere
//
//   - That a lease is current is checked right before a write, not with it. A worker that is paused
//     between the two for longer than its lease may conclude an event after another worker has begun to handle later ones of the key. Then one
//     of two conclusions of the same event counts, as ever, but order is not promised.
//   - Rows are settled, requeued and pruned one by one.
//   - Row IDs are unique for as long as the row is kept: an event id cannot be appended again before.
//
// All of this was run against FerretDB, corrected where it does not do what MongoDB does (see package testserver), and
// not against MongoDB. On FerretDB 1 as it is updates are not atomic, so nothing here holds once two write at the same time: [Migrate] logs a warning. [Store.SessionTx], for those who have a replica set and a transaction of their own, was not run at all.
package mongostore
