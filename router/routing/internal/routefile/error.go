package routefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fault is something wrong at a place of a routing file.
type Fault struct {
	Pos     Pos // the zero value: in the file as a whole
	Message string
}

// Error is what is wrong with a routing file, in the file's order.
type Error struct {
	File   string
	Faults []Fault
}

// NewError returns an [*Error] with these faults, sorted by place and each once, or nil if there are none.
func NewError(file string, faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Column, b.Pos.Column), strings.Compare(a.Message, b.Message))
	})
	return &Error{File: file, Faults: slices.Compact(faults)}
}

const maxPrinted = 50 // faults

// Error has a line for each fault, FILE:LINE:COLUMN: MESSAGE, for 50 at most. If there are several, the line before them says
// how many.
func (e *Error) Error() string {
	var b strings.Builder
	if n := len(e.Faults); n > 1 {
		fmt.Fprintf(&b, "%s has %d faults:\n", e.File, n)
	}
	for i, f := range e.Faults {
		if i == maxPrinted {
			fmt.Fprintf(&b, "\nand %d more", len(e.Faults)-maxPrinted)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.File + ":")
		if f.Pos != (Pos{}) {
			fmt.Fprintf(&b, "%s:", f.Pos)
		}
		b.WriteString(" " + f.Message)
	}
	return b.String()
}

const maxQuoted = 60 // characters of a value in a message

// quote returns a text of the file as messages show it: in backquotes, cut, and without what a terminal would take for a command.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('`')
	n := 0
	for _, r := range text {
		if n++; n > maxQuoted {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	b.WriteByte('`')
	return b.String()
}

// quoteAll lists texts: `a`, `b` or `c`.
func quoteAll(texts []string) string {
	var b strings.Builder
	for i, text := range texts {
		switch {
		case i == maxListed:
			fmt.Fprintf(&b, " and %d more", len(texts)-maxListed)
			return b.String()
		case i == 0:
		case i == len(texts)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(quote(text))
	}
	return b.String()
}

const maxListed = 20 // texts in a message

// suggest returns a question after the one of these texts that is meant, or "".
func suggest(text string, known []string) string {
	best, least := "", max(1, len(text)/3)+1
	for _, k := range known {
		if d := distance(text, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + quote(best) + "?)"
}

// distance counts the letters to insert, delete, replace or swap with their neighbour that make one text of the other.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	if len(s) > maxQuoted || len(t) > maxQuoted {
		return max(len(s), len(t)) // long ones are not compared
	}
	before, last, row := make([]int, len(t)+1), make([]int, len(t)+1), make([]int, len(t)+1)
	for j := range last {
		last[j] = j
	}
	for i := range s {
		row[0] = i + 1
		for j := range t {
			replace := last[j]
			if s[i] != t[j] {
				replace++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, replace)
			if i > 0 && j > 0 && s[i] == t[j-1] && s[i-1] == t[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(t)]
}
