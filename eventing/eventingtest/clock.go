package eventingtest

import (
	"sync"
	"time"
)

// Clock is a clock that stands still until it is moved. It is safe for
// concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the present, in whole milliseconds of UTC:
// what a person writes into the database has the server's time, so the two must
// not lie far apart.
func NewClock() *Clock {
	return &Clock{now: time.Now().UTC().Truncate(time.Millisecond)}
}

// Now returns what the clock shows. It is the Now of the engines' configurations.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
