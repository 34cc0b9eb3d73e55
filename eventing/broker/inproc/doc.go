// Package inproc is a broker inside one process: a Watermill publisher and
// subscriber that never makes the publisher wait, and tells it when a message
// has been acked.
//
// # Publishing
//
// A publish puts messages at the end of the topic's lists in memory and returns. The
// lists have no limit; bounding what is in flight is the publisher's part, as the
// outbox dispatcher does with its batch size. A topic without a subscription
// retains its messages, in order, for the first subscription that comes.
//
// Nothing survives the process. [Broker.PublishWithCompletion] is for publishers that
// have to know: after a crash, whatever has not been reported as done has to be
// published again.
//
// # Subscribing
//
// Every subscription gets its own copy of each message published while it
// exists, in the order of publishing. At most Window of them are delivered and not yet acked;
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
// It ends when its context is done or the broker closes: the output channel is
// closed, and a publish or subscribe that comes after the cancellation already finds it gone.
// What it has not acked, delivered or not, goes on as follows:
//
//   - It was the topic's only subscription: back to the topic, in order and before anything
//     published later. The next subscription gets it. Until then, an ack of a copy that
//     had been delivered still counts.
//   - Another subscription has a copy of the message too, or has acked it: the copy is
//     dropped. Since not everybody who was to ack it has, the message is reported with
//     [ErrAbandoned] once the others are through, and never as done.
//   - Other subscriptions exist, but none was given the message: it goes to the oldest
//     of them, before what that one has not been delivered yet.
//
// So a message that nobody acked is never reported as done and never dropped before Close.
// Subscriptions have no names, however, and the next one need not belong to the
// consumer that left: consumers that come and go while others stay should have a topic each,
// and those that share a topic should subscribe before the first publish.
package inproc
