package eventing

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// unavailable reports whether an error is of the connection to a broker, or of its
// momentary state, rather than of the message that it was returned for: errors of package
// net and of the operating system are, and those whose Temporary method says so.
func unavailable(err error) bool {
	var temporary interface{ Temporary() bool }
	if errors.As(err, &temporary) && temporary.Temporary() {
		return true
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// suspectFor is how long a message fails alone by such errors, while others pass, until it
// counts as unpublishable: a server may close the connection because of it.
const suspectFor = time.Minute

// suspicions are since when messages have failed alone by errors that may be of the moment,
// by the Seq of their rows.
type suspicions map[int64]time.Time

const maxSuspicions = 10_000

// lasting reports whether it is the message's error, or has been there for long enough.
func (s *suspicions) lasting(seq int64, err error) bool {
	if !unavailable(err) {
		return true
	}
	if *s == nil || len(*s) == maxSuspicions {
		*s = suspicions{}
	}
	since, known := (*s)[seq]
	if !known {
		since = time.Now()
		(*s)[seq] = since
	}
	return time.Since(since) >= suspectFor
}

// forget drops those of the rows that are out.
func (s suspicions) forget(sendings []*sending) {
	if len(s) == 0 {
		return
	}
	for _, out := range sendings {
		if out.open == 0 {
			delete(s, out.row.Seq)
		}
	}
}
