package send

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// notices tells what cannot wait for the report. It is safe for concurrent use.
type notices struct {
	w       io.Writer
	gateway string
	bar     bool // a progress bar may stand where we write

	mu   sync.Mutex
	told int // the highest attempt that was told of
}

// retry tells that an event will be tried again: of many at once, only the one
// that is furthest.
func (n *notices) retry(res result, attempts int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next := res.attempts + 1
	if next <= n.told {
		return
	}
	n.told = next
	n.print("%s; trying again, %d of %d", res.trouble(n.gateway), next, attempts)
}

// accepted ends a time of trouble; the next one is told of from its beginning.
func (n *notices) accepted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = 0
}

// hint says what most refusals have in common.
func (n *notices) hint(s Summary) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if refused := s.Statuses[http.StatusUnauthorized]; 2*refused > s.Events {
		n.print("Is HMAC_SECRET the one that the gateway printed? Without HMAC_SECRET set, \"gateway run\" makes a new one at each start. With HMAC_SECRETS_FILE, each source has its own.")
	}
}

// print drops what cannot be written: the error of the run says the same.
func (n *notices) print(format string, args ...any) {
	if n.bar {
		_, _ = io.WriteString(n.w, "\r\x1b[K")
	}
	_, _ = fmt.Fprintf(n.w, format+"\n", args...)
}

// trouble says why an event has to be tried again.
func (r result) trouble(gateway string) string {
	if r.status == 0 {
		return fmt.Sprintf("no answer from %s (%s)", gateway, printable(r.problem))
	}
	return fmt.Sprintf("%s answers %d (%s)", gateway, r.status, printable(r.problem))
}
