// Package sqlbroker is a Watermill pub/sub on Postgres, for those who have no other server.
// A topic is a table. It has the tables of watermill-sql's default schema, whose publishers
// and subscribers work with ours; it has a subscriber of its own, as watermill-sql's
// keeps a transaction open while a handler runs, which holds up every delivery on the
// server for as long, and stops for good at a malformed row. If subscribers of both kinds
// are in one group, they get the same messages, and lose none.
//
// # What a publish promises
//
// The messages of a call are added in one transaction: all, in order, or none. The error
// of a call says which, or that it cannot be known, as when the connection breaks during
// the commit: then the caller publishes again, and the messages may be there twice. A
// message that was added survives what a commit survives.
//
// # What a subscription promises
//
// Every message is delivered to each consumer group until it is acked: at least once. A
// group has one position in the topic, which follows the messages that are acked and
// passes none that is not. So:
//
//   - Of a group's subscribers, one has the topic at a time; the others stand by. More
//     processes make a topic safer, not faster; more topics, or partitions, do.
//   - With a window above 1 several messages are out at a time and may be acked in any
//     order. The position waits for the first that is not: after a crash, those behind
//     it come again, acked or not, of which there are at most as many as
//     SubscriberConfig.Batch, or the window, says. So far a message that is nacked for
//     ever holds up no other; then it does.
//   - With a window of 1, as partitions have it, messages come in their order.
//
// There is no deadline for an ack: a handler that hangs keeps its message, and with a
// window of 1 its topic; give handlers a timeout.
//
// What was in hand when a process died goes to another at once, when it hangs after
// TakeOverAfter. If the connection breaks, the subscriber makes a new one, and goes on where
// it was. A row whose metadata is no JSON object of strings goes to the topic
// "quarantine" and holds up no other.
//
// # Order, and what delays messages
//
// Messages are ordered by the transaction that added them, in the order in which these
// began to write, and within it as they were given. One goroutine's calls are in
// order, and so are those of a dispatcher and of another that takes over when it has
// ended. Of one that hung and goes on later, messages come again after others; the
// first copies are in order.
//
// For that, a message is not read before all transactions of the server have ended that
// began to write before it was added: of any table, in any database of the server, and
// prepared ones (PREPARE TRANSACTION), too. One that stays open for ten minutes delays
// all messages for ten minutes; none is lost. Keep write transactions short, and set
// idle_in_transaction_session_timeout. The broker itself has no transaction open
// between two statements.
//
// Transactions have other numbers on another server: after a restore of a dump, call
// [Renumber] before anything is published. A failover to a replica, and a physical
// backup, need nothing.
//
// # Connections
//
// A subscriber keeps one connection, however many topics and partitions it has, idle or
// busy, and no handler ever waits for it: the pool may be shared if it has one connection
// more for each subscriber. While it is idle it asks for the news of all topics in
// one round trip each PollInterval, which writes nothing. The connection has advisory locks:
// it has to reach Postgres directly, or through a pooler in session mode. Publishers
// may use any.
//
// # Tables and growth
//
// For a topic T there are "watermill_T" and "watermill_offsets_T" in the first schema of
// the search path. Publishers and subscribers make them if they may; else see [SchemaSQL].
// A role needs SELECT, INSERT, UPDATE and DELETE on them, and USAGE on their sequence.
// Names have at most 45 bytes, those of partitions included: an ordered consumer's topic 42.
//
// Subscribers delete messages that every group of their topic has acked, each CleanInterval,
// a thousand at a time, one subscriber at a time. A topic without groups is left alone. A
// group is one from its first subscription on, and finds what is left then; so make the
// groups that belong together before any reads (Subscriber.SubscribeInitialize). One that
// nobody subscribes for any more keeps all that it has not read: delete its row in
// "watermill_offsets_T".
package sqlbroker
