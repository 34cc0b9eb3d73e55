// Package mongorepo keeps the gateway's ledger and its projection in MongoDB, without transactions of
// the database, beside what [mongostore] keeps there.
//
// # What decides
//
// Of an accepted event the document of the ledger decides, whose _id is the idempotency key: it has the envelope in it until that
// is in the outbox. If the process dies in between, the courier has got no answer; its repeat
// completes what is missing, or the sweeper does. Of an event that came by the queue alone the same document decides: the worker inserts it
// before all else, and an event that finds another envelope in it is a repeat, or a conflict. If the worker dies then, the event comes again and
// finds its own.
//
// Of an event at the worker its document in consumer_inbox decides, as for any consumer of [mongostore]. What the ledger and
// shipment_events say follows from it. The shipment itself is changed before that, by one conditional write, which leaves in the document
// what the event did: a worker that does it again, since the one before has died, finds that and changes nothing.
package mongorepo
