// Package condition makes values and conditions out of JSON Schemas and CEL.
//
// A [Schema] checks JSON, turns it into values, and tells CEL their type, so that a misspelt field
// is a fault of the condition and not of each event. A [Scope] has the variables that conditions
// may use; it compiles a text into a [Program], or says where it is wrong. A program evaluates
// [Values] to a bool or a text.
//
// What a program may cost is settled when it is compiled, by the sizes that the schemas allow:
// nothing is counted when it runs. The common shapes, such as
//
//	payload.new_status == "approved" && !payload.urgent
//
// run as Go functions; CEL runs the rest. Both give the same results.
//
// A field that is optional and absent has its type's zero value, as in protocol buffers: the
// empty text, 0, false, an empty list, map or object; null, where null is allowed or the type is
// not known. has() tells whether it is there.
package condition
