package condition

import (
	"strings"
	"testing"
)

func TestConstant(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	for text, want := range map[string]verdict{
		`true`:                          always,
		`!true`:                         never,
		`1 + 1 == 2`:                    always,
		`[1, 2].exists(x, x == 3)`:      never,
		`"a".startsWith("b") || false`:  never,
		`type(1) == int`:                always,
		`1 / 0 == 1`:                    depends, // an error, each time
		`payload.urgent || true`:        always,
		`payload.urgent && false`:       never,
		`any.none && false`:             never, // whatever errors there are
		`payload.urgent && true`:        depends,
		`payload.urgent ? true : true`:  depends,
		`true ? false : payload.urgent`: never,
		`false ? payload.urgent : true`: always,

		`payload.new_status == "aproved"`:                                    never,
		`"aproved" == payload.new_status`:                                    never,
		`payload.new_status != "aproved"`:                                    always,
		`!(payload.new_status == "aproved")`:                                 always,
		`payload.new_status == "aproved" || payload.new_status == "gone"`:    never,
		`payload.new_status == "aproved" || payload.urgent`:                  depends,
		`payload.new_status == "aproved" && payload.urgent`:                  never,
		`payload.new_status in ["aproved", "gone"]`:                          never,
		`payload.new_status in ["aproved", "approved"]`:                      depends,
		`payload.new_status == "approved"`:                                   depends,
		`payload.new_status == ""`:                                           depends, // conservative
		`payload.old_status == "approved"`:                                   never,
		`payload.changed_by.role == "officer"`:                               never,
		`payload.changed_by.deputy.deputy.role != "officer"`:                 always,
		`payload.tags[0] == "purple"`:                                        depends, // there may be none
		`payload.signals.exists(s, s.kind == "x")`:                           depends,
		`event.severity == "critical"`:                                       never,
		`event.severity == "CRITICAL"`:                                       depends,
		`any.new_status == "aproved"`:                                        depends,
		`payload.note == "anything"`:                                         depends,
		`[payload.new_status].exists(payload, payload == "aproved")`:         depends,
		`payload.new_status == "aproved" ? payload.urgent : event.id != "a"`: depends,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		value, is := p.Constant()
		if got := p.constant; got != want || is != (want != depends) || value != (want == always) {
			t.Errorf("%s is %v, not %v", text, got, want)
		}
	}
	p, err := scope.Compile(`"fixed"`, Text)
	if err != nil {
		t.Fatal(err)
	}
	if _, is := p.Constant(); is {
		t.Error("a text is a constant condition")
	}
}

func TestImpossible(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	for text, want := range map[string]string{
		`payload.new_status == "aproved"`:                                `line 1, column 23: payload.new_status is never "aproved"; did you mean "approved"?`,
		`payload.new_status != "gone"`:                                   `line 1, column 23: payload.new_status is never "gone"`,
		`payload.urgent ||` + "\n" + ` "Approved" == payload.new_status`: `line 2, column 2: payload.new_status is never "Approved"; did you mean "approved"?`,
		`payload.new_status in ["approved", "rejcted"]`:                  `line 1, column 36: payload.new_status is never "rejcted"; did you mean "rejected"?`,
		`payload.tags.exists(x, x == "grene")`:                           `line 1, column 29: x is never "grene"; did you mean "green"?`,
		`payload.tags[1] == "grene"`:                                     `payload.tags[1] is never "grene"`,
		`"grene" in payload.tags`:                                        `line 1, column 1: payload.tags never has "grene"; did you mean "green"?`,
		`payload.changed_by.deputy.role == "boss" ? true : false`:        `payload.changed_by.deputy.role is never "boss"`,
		`event.severity == "HIGH"`:                                       `event.severity is never "HIGH"`,
		`payload.old_status == "approved"`:                               `payload.old_status is never "approved"`,
		`payload.new_status == "approved"`:                               ``,
		`payload.new_status == "" && payload.new_status in ["intake"]`:   ``,
		`payload.note == "x" && any.new_status == "x"`:                   ``,
		`payload.new_status == payload.note && payload.score == 5`:       ``,
		`"red" in payload.tags && payload.new_status > "x"`:              ``,
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		faults := p.Impossible()
		if len(faults) > 1 || (want == "") != (len(faults) == 0) || want != "" && !strings.Contains(faults[0].String()+faults[0].Suggestion(), want) {
			t.Errorf("%s: %v, not %q", text, faults, want)
		}
	}
	p, err := scope.Compile(`payload.new_status == "a" || payload.new_status == "b"`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if faults := p.Impossible(); len(faults) != 2 || faults[0].Column > faults[1].Column {
		t.Errorf("two words: %v", faults)
	}
}
