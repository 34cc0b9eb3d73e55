// Package inproc is a broker inside one process: a Watermill publisher and
// subscriber that never makes the publisher wait, and tells it when a message
// has been acked.
//
// # Publishing
//
// A publish puts messages at the end of the topic's lists in memory, one for each
// consumer, and returns. A topic without a consumer retains its messages, in order, for
// the first that comes. The lists have no limit: bounding what is in flight is the
// publisher's part, as the outbox dispatcher does with its batch size. A named consumer
// that never comes back retains its messages until Close; who publishes no more than so many
// before they are done then waits for it.
//
// Nothing survives the process. [Broker.PublishWithCompletion] is for publishers that
// have to know: after a crash, whatever has not been reported as done has to be
// published again.
//
// # Consumers
//
// Every consumer of a topic gets each message published from its first subscription
// on, in the order of publishing, and again until it has acked it. Its
// subscriptions share its messages: the next goes to the one with the fewest in hand.
//
//   - [Broker.SubscribeConsumer] is for a consumer with a name, which exists until Close, subscribed
//     or not.
//   - [Broker.SubscribePartition] is for one that reads the topic alone and in order, under a lease.
//     Do not mix it with SubscribeConsumer under one name.
//   - [Broker.Subscribe] is for one without a name, which ends with this one subscription.
//
// At most a window of messages of a subscription are delivered and not yet acked;
// with a window of 1 the next one is delivered only after the ack of the one before.
// A nacked message is delivered again, as a fresh copy, after a delay that doubles each time;
// it keeps its place in the window while it waits, so with a window of 1 nothing
// overtakes it, and a window full of failing messages slows down rather than spins.
// Copies share the bytes of the payload, as Watermill's own do: treat them as read-only.
//
// The context of a delivered message derives from the subscription's. It is cancelled
// after the ack or nack, and when the subscription ends.
//
// # When a subscription ends
//
// It ends when its context is done, another subscribes to its partition, or the broker
// closes: the output channel is closed, and a publish or subscribe that comes after the
// cancellation already finds it gone. What it has not acked, delivered or not, goes to the
// consumer's other subscriptions, or waits for the next one, in order and before anything
// newer. An ack of a copy that had been delivered counts until another subscription
// has got the message, and then no more: it is handled twice, and the second
// ack settles it.
//
// A consumer without a name ends too, and leaves what it has not acked:
//
//   - It was the topic's only one: to the next that comes, as above.
//   - Another consumer has the message too, or has acked it: the copy is
//     dropped. Since not everybody who was to ack it has, the message is reported with
//     [ErrAbandoned] once the others are through, and never as done.
//   - There are others, but none was given the message: to the oldest
//     of them, before what that one has not been delivered yet.
//
// So a message is never reported as done before every named consumer has acked it, and
// one that nobody has acked is never dropped before Close.
package inproc
