package courier

import (
	"fmt"
	"unicode/utf8"
)

// MaxProjectedStatus bounds the status that a shipment can take on, in
// characters.
const MaxProjectedStatus = 64

// CheckStatus reports whether a shipment can take on the status. The intake
// takes any text, because an event is the courier's word and must not be lost;
// a shipment's state takes names only, such as "In Transit", "out_for_delivery"
// or "DL": up to [MaxProjectedStatus] letters, digits, spaces and . - _ / ( ).
// An empty status is fine: it leaves the state as it is. A status that does not
// pass never will.
func CheckStatus(status string) error {
	if n := utf8.RuneCountInString(status); n > MaxProjectedStatus {
		return fmt.Errorf("payload.status has %d characters; a shipment's state takes at most %d", n, MaxProjectedStatus)
	}
	for _, r := range status {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case r == ' ', r == '.', r == '-', r == '_', r == '/', r == '(', r == ')':
		default:
			return fmt.Errorf("payload.status contains %+q; a shipment's state takes letters, digits, spaces and . - _ / ( )", r)
		}
	}
	return nil
}
