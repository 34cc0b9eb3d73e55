package routing

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// Write writes the explanation for people to read: of each consumer whether it gets the event and why, what it does, and
// what each rule, modifier and lookup has to do with it. Long values are cut, and what events bring along cannot steer a
// terminal. The error is the writer's.
func (x Explanation) Write(w io.Writer) error {
	var p page
	p.line(0, "%s %s", x.EventType, x.EventID)
	p.line(0, "by %s, version %s%s", x.File, x.Version, map[bool]string{true: ", in the " + string(x.Lane) + " lane"}[x.Lane != ""])
	if x.Unroutable != "" {
		p.line(0, "")
		p.line(0, "%s", x.Unroutable)
	}
	if x.Undecided != "" {
		p.line(0, "")
		p.line(0, "What consumers do is not known: %s.", x.Undecided)
		p.line(0, "In Go, routing.Router.Explain has them.")
	}
	for _, c := range x.Consumers {
		p.line(0, "")
		c.write(&p)
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (x ConsumerExplanation) write(p *page) {
	if !x.Delivered {
		p.line(0, "%s does not get it: %s", x.Consumer, x.Why)
		return
	}
	p.line(0, "%s gets it: %s", x.Consumer, x.Why)
	switch {
	case x.Error != "":
		p.line(1, "fails: %s", clip(x.Error, maxShownError))
		if x.Reason == "" {
			p.line(1, "       The attempt is retried, as the consumer's policy says.")
		} else {
			p.line(1, "       It is a dead letter, with the reason %s.", x.Reason)
		}
	case x.Actions == nil:
		return // Undecided
	case len(x.Rules) == 0:
		p.line(1, "does nothing: it has no rules for events of this type")
	case len(x.Actions) == 0:
		p.line(1, "does nothing: no rule matches, and the event counts as processed")
	}
	for _, a := range x.Actions {
		p.line(1, "does %s   (line %d)", a, a.Line)
	}
	x.writeRules(p)
	x.writeModifiers(p)
	x.writeLookups(p)
}

// writeRules leaves out what goes without saying: an action that is always taken, and rules of an event that did not get
// as far as them.
func (x ConsumerExplanation) writeRules(p *page) {
	obvious := len(x.Rules) == 1 && x.Rules[0].When == "" && x.Rules[0].Outcome == Matched
	if obvious || !slices.ContainsFunc(x.Rules, func(r RuleTried) bool { return r.Outcome != NotTried }) {
		return
	}
	p.line(1, "rules")
	for _, r := range x.Rules {
		then := "→ " + r.Do
		if r.Continue {
			then += ", and on to the next"
		}
		p.tried(r.Line, r.Outcome, strings.TrimSpace(oneLine(r.When, "when ")+" "+then), r.Why, r.Values)
	}
}

func (x ConsumerExplanation) writeModifiers(p *page) {
	if len(x.Modifiers) > 0 {
		p.line(1, "modifiers")
	}
	several := slices.ContainsFunc(x.Modifiers, func(m ModifierTried) bool { return m.RuleLine != x.Modifiers[0].RuleLine })
	for _, m := range x.Modifiers {
		what := m.Name
		if several {
			what += fmt.Sprintf(" (for line %d)", m.RuleLine)
		}
		what += oneLine(m.When, ": when ") + " →"
		for _, change := range []struct {
			word   string
			params map[string]any
		}{{"set", m.Set}, {"add", m.Add}, {"remove", m.Remove}} {
			if len(change.params) > 0 {
				what += " " + change.word + " " + flow(change.params)
			}
		}
		p.tried(m.Line, m.Outcome, what, m.Why, m.Values)
	}
}

func (x ConsumerExplanation) writeLookups(p *page) {
	if len(x.Lookups) > 0 {
		p.line(1, "lookups")
	}
	for _, l := range x.Lookups {
		what := l.Name
		if l.Key != "" {
			what += " " + strconv.Quote(clip(l.Key, maxShownValue))
		}
		if l.Error == "" {
			p.line(2, "%s = %s", what, inJSON(l.Value))
			continue
		}
		p.line(2, "%s failed: %s", what, clip(l.Error, maxShownError))
		then := policyWords[routefile.OnError(l.OnError)]
		switch {
		case l.OnError == string(routefile.Default):
			then += ": " + inJSON(l.Value)
		case l.OnError == string(routefile.Retry) && l.Permanent:
			then = "the event is a dead letter, for no retry can mend this"
		}
		p.line(2, "%s on_error: %s, so %s", strings.Repeat(" ", len(l.Name)), l.OnError, then)
	}
}

// page is text that grows line by line.
type page struct{ b strings.Builder }

// Widths of the columns before what was tried.
const (
	lineWidth    = 5
	outcomeWidth = 11
)

func (p *page) line(depth int, format string, args ...any) {
	line := strings.TrimRight(strings.Repeat("  ", depth)+printable(fmt.Sprintf(format, args...)), " ")
	p.b.WriteString(line + "\n")
}

// tried is a line about a rule or a modifier, and one for each value.
func (p *page) tried(line int, o Outcome, what, why string, values []Term) {
	p.line(1, "%*d  %-*s  %s", lineWidth, line, outcomeWidth, o, what)
	indent := strings.Repeat(" ", lineWidth+2+outcomeWidth+2)
	if why != "" {
		p.line(1, "%s%s", indent, clip(why, maxShownError))
	}
	for _, v := range values {
		if v.Error != "" {
			p.line(1, "%s%s: %s", indent, oneLine(v.Text, ""), clip(v.Error, maxShownValue))
			continue
		}
		p.line(1, "%s%s = %s", indent, oneLine(v.Text, ""), inJSON(v.Value))
	}
}

// String returns the action as a routing file would say it in one line: notify {channels: [sms], priority: normal}.
func (a Action) String() string {
	if len(a.params) == 0 {
		return a.Name
	}
	return a.Name + " " + flow(a.params)
}

// flow is a YAML mapping in one line.
func flow(params map[string]any) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(params)) {
		value := ""
		switch v := params[name].(type) {
		case []string:
			words := make([]string, len(v))
			for i, s := range v {
				words[i] = scalar(s)
			}
			value = "[" + strings.Join(words, ", ") + "]"
		case string:
			value = scalar(v)
		default:
			value = inJSON(v)
		}
		parts = append(parts, scalar(name)+": "+value)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// bare is what YAML takes for a text without quotes; true and 12 are other things.
var bare = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

func scalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return strconv.Quote(s)
	}
	if bare.MatchString(s) {
		return s
	}
	return inJSON(s)
}

// oneLine is a condition, which may have several, after a word; "" if there is none.
func oneLine(condition, after string) string {
	if condition == "" {
		return ""
	}
	return after + strings.Join(strings.Fields(condition), " ")
}

// inJSON is a value as people read it: cut if it is long.
func inJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return clip(fmt.Sprint(v), maxShownValue)
	}
	return clip(strings.TrimSuffix(b.String(), "\n"), maxShownValue)
}

// Bytes that are shown.
const (
	maxShownKey   = 60
	maxShownValue = 200
	maxShownError = 1000
)

// clip cuts a text to so many bytes.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s))
}

// printable escapes what is not: events are written by others, and must not steer a terminal.
func printable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
