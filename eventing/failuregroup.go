package eventing

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
)

// FailureGroup is a number of dead letters that look like one failure.
type FailureGroup struct {
	Consumer string     `json:"consumer_name"`
	Reason   ReasonCode `json:"reason_code"`
	Error    string     `json:"error"` // see [NormalizeError]; OtherFailures for the rest
	Count    int        `json:"count"`
	// FirstAt and LastAt are when the first and the last of them died.
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	Example Target    `json:"example"` // the oldest
}

// OtherFailures stands in for the consumer, reason and error of those that are beyond the
// first 1,000 groups.
const (
	OtherFailures = "(other)"
	maxGroups     = 1000
)

// failureGroups gathers dead letters that look like one failure.
type failureGroups map[failureKey]*FailureGroup

type failureKey struct {
	consumer string
	reason   ReasonCode
	error    string
}

func (g failureGroups) add(dl DeadLetter) {
	k := failureKey{dl.Consumer, dl.Reason, NormalizeError(dl.Message)}
	if g[k] == nil && len(g) >= maxGroups {
		k = failureKey{OtherFailures, OtherFailures, OtherFailures}
	}
	if g[k] == nil {
		g[k] = &FailureGroup{Consumer: k.consumer, Reason: k.reason, Error: k.error, FirstAt: dl.CreatedAt, Example: dl.Target()}
	}
	g[k].Count++
	if died := dl.diedAt(); died.After(g[k].LastAt) {
		g[k].LastAt = died
	}
}

// list returns the most frequent first.
func (g failureGroups) list() []FailureGroup {
	list := make([]FailureGroup, 0, len(g))
	for _, group := range g {
		list = append(list, *group)
	}
	slices.SortFunc(list, func(a, b FailureGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), a.FirstAt.Compare(b.FirstAt), cmp.Compare(a.Consumer, b.Consumer),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Error, b.Error))
	})
	return list
}

// Groups counts the dead letters of a selection by consumer, reason and normalised error, the
// most frequent first.
func (d *DeadLetters) Groups(ctx context.Context, s Selection) ([]FailureGroup, error) {
	groups := failureGroups{}
	if err := d.Select(ctx, s, func(dl DeadLetter) error {
		groups.add(dl)
		return nil
	}); err != nil {
		return nil, err
	}
	return groups.list(), nil
}

// diedAt returns when it died for the last time: no later act or replay counts.
func (d *DeadLetter) diedAt() time.Time {
	if n := len(d.History); n > 0 && d.History[n-1].At.After(d.CreatedAt) {
		return d.History[n-1].At
	}
	return d.CreatedAt
}

// maxNormalizedBytes bounds what NormalizeError returns.
const maxNormalizedBytes = 256

// varying are the parts of an error that differ between two failures of one cause, in the
// order in which they are tried at a place. All but quoted text have a digit, and the last
// leaves none: what is normalised stays as it is.
var varying = regexp.MustCompile(strings.Join([]string{
	`"[^"]*"|'[^']*'|` + "`[^`]*`", // all other alternatives are groups
	`([A-Za-z]'[a-z]{1,2}\b)`,      // an apostrophe: it stays
	`(\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)`,
	`(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?Z| ?[+-]\d\d:?\d\d)?)`,
	`(\[[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(?:%\w+)?\](?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?|\b(?:localhost|[\w-]+(?:\.[\w-]+){1,7}):\d+)`,
	`(\b0[xX][0-9a-fA-F]+\b|\b[0-9a-fA-F]{8,}\b)`,
	`((?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h)){1,4}\b|\d+(?:\.\d+)*)`,
}, "|"))

// placeholders are those of the groups of varying.
var placeholders = []string{"", "<uuid>", "<time>", "<addr>", "<hex>", "<n>"}

// NormalizeError returns an error's text without what differs between two failures of one
// cause: quoted texts, UUIDs, points in time, addresses, hexadecimal and decimal numbers give
// way to placeholders such as <uuid>. The result has at most 256 bytes, and no digit;
// normalised once more it is the same.
func NormalizeError(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(cut(text, 2*maxNormalizedBytes), "�")), " ")
	var b strings.Builder
	at := 0
	for _, m := range varying.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[at:m[0]])
		b.WriteString(placeholder(text[m[0]:m[1]], m))
		at = m[1]
	}
	b.WriteString(text[at:])
	if normal := b.String(); len(normal) > maxNormalizedBytes {
		return cut(normal, maxNormalizedBytes-len("…")) + "…"
	}
	return b.String()
}

// placeholder stands for a match of varying.
func placeholder(match string, groups []int) string {
	for i, p := range placeholders {
		if groups[2*i+2] < 0 {
			continue
		}
		digits := strings.Trim(match, "0123456789") == ""
		switch {
		case p == "<hex>" && digits:
			return "<n>"
		case !strings.ContainsAny(match, "0123456789"):
			return match // an apostrophe, or a word of the letters a to f
		}
		return p
	}
	return "<text>"
}

// cut returns at most n bytes of a text, in whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
