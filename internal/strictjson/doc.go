// Package strictjson checks and reads JSON where two readers of the same bytes
// must never disagree: a body is checked once, on its raw bytes, and everything
// read from it afterwards relies on that check.
//
//   - [Check] refuses what RFC 8259 leaves to the reader: invalid UTF-8,
//     duplicate keys, lone surrogates, bytes after the value, nesting without
//     bound.
//   - [Members] and [String] read an object exactly, case included, where
//     encoding/json would also take "EVENTID" for "eventId".
//   - [IsCompact] tells what encoding/json need not compact.
//   - [AppendCanonical] gives two texts of the same value the same bytes.
package strictjson
