package eventlog

import (
	"crypto/sha1" //nolint:gosec // what a UUID of version 5 is made with; nothing is kept safe by it
	"fmt"
	"strings"
)

// namespace is 462e1ccf-6c9c-4473-af8b-3b8a0f47f0a0. It must never change.
var namespace = [16]byte{0x46, 0x2e, 0x1c, 0xcf, 0x6c, 0x9c, 0x44, 0x73, 0xaf, 0x8b, 0x3b, 0x8a, 0x0f, 0x47, 0xf0, 0xa0}

// UUID returns the UUID under which the log keeps an event's or an aggregate's ID: the ID itself
// if it is a UUID as RFC 9562 writes them, in lower case; else the UUID of version 5 of the text in
// the namespace 462e1ccf-6c9c-4473-af8b-3b8a0f47f0a0. So IDs that differ in their case only stay
// different. An ID that is itself the UUID of another's text shares that: [Log.Record] refuses such
// an event.
func UUID(id string) string {
	if isUUID(id) {
		return id
	}
	h := sha1.New() //nolint:gosec // see the import
	h.Write(namespace[:])
	h.Write([]byte(id))
	b := h.Sum(nil)
	b[6], b[8] = b[6]&0x0f|0x50, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// mayBeDerived reports whether a UUID is of version 5, and so may be that of some other text.
func mayBeDerived(uuid string) bool {
	return uuid[14] == '5' && strings.IndexByte("89ab", uuid[19]) >= 0
}

func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}
