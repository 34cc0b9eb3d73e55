// Package redisbroker is a Watermill pub/sub on Redis streams: a publisher that sends
// what it is given at once and keeps its order, and a subscriber that reads, and acks,
// many messages at a time. Both speak the wire format of watermill-redisstream, and work
// with its subscribers and publishers. A topic is a stream.
//
// # What a publish promises
//
// The messages of a call are added in transactions (MULTI … EXEC) of up to 1,000, one
// after the other, each sent in one go. Redis adds a transaction's messages all, in
// order and next to each other, or none; none is sent after one that failed. So a
// call that fails has added a first part of its messages: it says how many. That and
// a crash in between make it deliver at least once: what the caller does not know
// to be added it publishes again.
//
// It cannot know when the connection breaks, or the time runs out, with a
// transaction under way: its messages may have been added without being counted, and
// may still be added later, once a server that hung comes round. A second publish
// then adds them again. The first copies are in order among themselves, which
// suffices consumers that drop those that come again.
//
// A message that was added survives what the server's persistence has it survive:
// with "appendfsync everysec" a power cut may take the last second's, and a failover
// those that the replica had not got.
//
// # What a subscription promises
//
// Every message of the stream is delivered to one subscriber of each consumer group until
// one has acked it: at least once. What was in hand when a process died goes to another
// after ClaimAfter, as does what a broken connection has lost on its way here; what was in
// hand when a subscription ended at once. Messages come in their order only with a window
// of 1 and one subscriber in the group, or from SubscribePartition.
//
// If the stream or the group has been deleted, or Redis has lost them, the subscriber
// makes them anew and goes on with the first entry that there is. An entry that is no
// message goes whole to the stream "TOPIC.quarantine" and holds up no other. A topic that
// cannot be read, as its key is no stream, say, holds up no other either. While Redis has
// no memory left (maxmemory, with noeviction), it still delivers, and takes acks; only the
// quarantine, and groups that are new, have to wait.
//
// A command that takes longer than the client's ReadTimeout is given up. If a link is too
// slow for a batch in that time, smaller ones are read.
//
// All topics of a group are read by one command on one connection, beside which there is
// one for acks. On a cluster each topic has its own.
//
// # What a stream keeps
//
// An ack removes nothing from a stream. The publisher does: beyond so many of the newest
// messages (PublisherConfig.MaxLen), those that every consumer group has acked. So a group
// that nobody reads keeps all there is, and a new group begins with the oldest that is
// left.
//
// # Clients
//
// The client's options matter:
//
//   - ContextTimeoutEnabled has to be on, or deadlines would not be heeded. Without a
//     deadline ReadTimeout, 5 seconds by default, is how long a server may hang.
//   - MaxRetries retries connecting, and transactions that were not sent whole: it doubles
//     nothing. A caller that backs off by itself, as an outbox dispatcher does, is better
//     off with none (-1): it learns sooner that the server is down.
//
// On a cluster, all messages of a topic are on one node. On a cluster, or a ring, each
// topic takes a connection of the pool while it is read: make PoolSize larger than their
// number.
//
// An ACL's user needs XADD, MULTI and EXEC to publish, and EVAL, EVALSHA, EXISTS, XLEN, XINFO
// GROUPS, XPENDING and XTRIM to trim; XGROUP, XREADGROUP, XACK, XAUTOCLAIM, XCLAIM and XPENDING
// to subscribe, XADD for the quarantine, and EVAL, EVALSHA and XINFO CONSUMERS for the consumers
// of processes that are gone to leave their group, where they stay otherwise.
package redisbroker
