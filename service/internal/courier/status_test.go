package courier

import (
	"strings"
	"testing"
)

func TestCheckStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []string{
		"", "In Transit", "DELIVERED", "Out for Delivery", "out_for_delivery", "DL", "Delivered - Left at door (P.O. box 5/6)", strings.Repeat("x", MaxProjectedStatus),
	} {
		if err := CheckStatus(status); err != nil {
			t.Errorf("%q: %v", status, err)
		}
	}
	for _, status := range []string{"<delivered>", "in\ntransit", "nul\x00", "übergeben", "lost?", strings.Repeat("x", MaxProjectedStatus+1)} {
		if err := CheckStatus(status); err == nil {
			t.Errorf("%q: accepted", status)
		}
	}
}
