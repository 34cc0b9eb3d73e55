package eventing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Period is a length of time as people count it: calendar years and days, and a clock's duration.
type Period struct {
	Years, Days int
	Rest        time.Duration
}

const maxCount = 10_000 // of years, weeks or days

// ParsePeriod reads a Go duration, or a whole number of days, weeks or years: 90d, 2w, 7y.
func ParsePeriod(text string) (Period, error) {
	bad := fmt.Errorf("%q is no period: write 250ms, 30s, 5m, 12h, 90d, 2w or 7y", text)
	if n := len(text) - 1; n > 0 && strings.ContainsRune("dwy", rune(text[n])) {
		count, err := strconv.Atoi(text[:n])
		if err != nil || count < 0 || count > maxCount {
			return Period{}, bad
		}
		switch text[n] {
		case 'd':
			return Period{Days: count}, nil
		case 'w':
			return Period{Days: 7 * count}, nil
		}
		return Period{Years: count}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return Period{}, bad
	}
	return Period{Rest: d}, nil
}

// Before returns the time that lies a period before another.
func (p Period) Before(t time.Time) time.Time {
	return t.AddDate(-p.Years, 0, -p.Days).Add(-p.Rest)
}

// Duration returns the period as a clock's duration, with years of 365 days; one that is longer than
// a duration can be (292 years) is the longest.
func (p Period) Duration() time.Duration {
	const day = 24 * time.Hour
	if days := p.Years*365 + p.Days; days < int(math.MaxInt64/day) {
		if d := time.Duration(days) * day; d <= math.MaxInt64-p.Rest {
			return d + p.Rest
		}
	}
	return math.MaxInt64
}

// IsZero reports whether the period is of no length.
func (p Period) IsZero() bool { return p == Period{} }

func (p Period) String() string {
	switch {
	case p.Years > 0 && p.Days == 0 && p.Rest == 0:
		return strconv.Itoa(p.Years) + "y"
	case p.Days > 0 && p.Years == 0 && p.Rest == 0:
		return strconv.Itoa(p.Days) + "d"
	case p.Years == 0 && p.Days == 0:
		return p.Rest.String()
	}
	return fmt.Sprintf("%dy%dd%s", p.Years, p.Days, p.Rest)
}

// Retention says how long an event log keeps the events of a category.
type Retention struct {
	Category string
	// Types are the event types of the category.
	Types []string
	// Keep is how long an event is kept, from its time on; with After, from the end of its aggregate's life on.
	Keep Period
	// After are the event types that end the life of an aggregate, and Unless those that begin it again: while
	// the last of them is not one of After, nothing of the aggregate goes.
	After, Unless []string
}
