// Package eventlog keeps every event in one table, events, for those who ask later what
// happened: an audit, a support desk, the comparison of two routing tables over what was
// recorded. It is an optional consumer, on PostgreSQL or SQLite, through database/sql.
//
// In reading order:
//
//   - [Migrations] makes the table, with the fields and indexes that the routing framework
//     specifies. It is append-only: triggers refuse UPDATE, and DELETE except by who says
//     so for a transaction.
//   - [Log.Record] appends an event, in a transaction of the caller's; [Log.Handle] is the same as the
//     handler of a consumer. An event is in the log once, however often it is delivered.
//   - [Log.Each] reads events back, in the order of their time. [Entry.Envelope] is the event as it was.
//   - [Log.Prune] deletes what has been kept long enough, by category; [Log.Pruner] has the
//     library's pruner do it.
//
// # What is kept where
//
//	id              of the row: a UUIDv7
//	event_type      the event's type
//	event_id        the event's ID, or what UUID makes of it
//	aggregate_type  the aggregate's type; may be empty
//	aggregate_id    the aggregate's ID, or what UUID makes of it; without one: event_id
//	payload         the event's payload
//	metadata        what else the envelope says, under its names there: correlation_id, causation_id,
//	                tenant_id, station_id, schema_version, ordering_key, idempotency_key, traceparent,
//	                tracestate; what the columns could not hold of event_id, aggregate_id and
//	                occurred_at; routing_version; and what the caller of Record says
//	created_at      when the event occurred, to the microsecond
//	processed_at    when the log recorded it
//	retry_count     the attempts to record it that had failed before
//	status          processed
//
// Lane and DueAt are of the outbox, and not kept.
//
// IDs of the library are any text, and the columns are UUIDs: see [UUID]. The original of what
// is no UUID is in metadata, and in the [Entry]. Two events of which one's ID is the UUID of the other's
// cannot both be in the log: [Log.Record] refuses the second, which as a rule makes it a dead letter.
//
// An event without an aggregate is an aggregate of its own: were they all one, the end of one
// would be the end of all.
//
// JSONB cannot hold all that JSON can say: no NUL character ("\u0000"), no half of a surrogate pair, no number
// of any length. A payload with such a thing (or with nesting beyond 1,000, or numbers that would come back as more than 8 MB of digits)
// is kept on Postgres as a JSON string of its text, and metadata has "payload_encoding": "text". An [Entry] has it as it was; in
// SQL, payload #>> '{}' is its text.
package eventlog
