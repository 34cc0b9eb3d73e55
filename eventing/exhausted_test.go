package eventing

import (
	"context"
	"strings"
	"testing"
)

// What a policy names has to be there, and what is there has to be named: an event must
// not be dropped, or an action forgotten, by a misspelling.
func TestActionsAreChecked(t *testing.T) {
	t.Parallel()
	act := func(context.Context, any, Conclusion) error { return nil }
	for name, c := range map[string]struct {
		names   []string
		actions map[string]Action
		problem string // empty: none
	}{
		"the default":             {nil, nil, ""},
		"a dead letter and alert": {[]string{ActionDeadLetter, ActionAlert}, nil, ""},
		"a fallback alone":        {[]string{ActionFallback}, map[string]Action{ActionFallback: act}, ""},
		"an alert alone":          {[]string{ActionAlert}, nil, "would drop the event"},
		"one that is not there":   {[]string{ActionDeadLetter, ActionDefault}, nil, "register it"},
		"one that is not named":   {[]string{ActionDeadLetter}, map[string]Action{"page": act}, "name it in OnExhausted"},
		"one named twice":         {[]string{ActionDeadLetter, ActionDeadLetter}, nil, "twice"},
		"a built-in one":          {[]string{ActionDeadLetter}, map[string]Action{ActionDeadLetter: act}, "built in"},
		"none":                    {[]string{"page"}, map[string]Action{"page": nil}, "nil"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := ConsumerConfig{Policy: Policy{OnExhausted: c.names}.WithDefaults(), Actions: c.actions}
			err := cfg.checkActions()
			if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
				t.Errorf("got %v, want %q", err, c.problem)
			}
		})
	}
}
