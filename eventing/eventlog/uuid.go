package eventlog

import (
	"strings"

	"github.com/google/uuid"
)

// namespace must never change.
var namespace = uuid.MustParse("462e1ccf-6c9c-4473-af8b-3b8a0f47f0a0")

// UUID returns the UUID under which the log keeps an event's or an aggregate's ID: the ID itself
// if it is a UUID as RFC 9562 writes them, in lower case; else the UUID of version 5 of the text in
// the namespace 462e1ccf-6c9c-4473-af8b-3b8a0f47f0a0. So IDs that differ in their case only stay
// different. An ID that is itself the UUID of another's text shares that: [Log.Record] refuses such
// an event.
func UUID(id string) string {
	if isUUID(id) {
		return id
	}
	return uuid.NewSHA1(namespace, []byte(id)).String()
}

// mayBeDerived reports whether a UUID is of version 5, and so may be that of some other text.
func mayBeDerived(id string) bool {
	return id[14] == '5' && strings.IndexByte("89ab", id[19]) >= 0
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
