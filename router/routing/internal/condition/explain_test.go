package condition

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	scope, s := caseScope(t)
	v := caseValues(t, s)
	v.Event.OccurredAt = time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC)
	for text, want := range map[string][]Term{
		`true`:                             {},
		`payload.new_status == "approved"`: {{Text: "payload.new_status", Value: "approved"}},
		`payload.score > 5 && payload.score < 100 || has(payload.limit)`:      {{Text: "payload.score", Value: int64(78)}, {Text: "has(payload.limit)", Value: false}},
		`payload.changed_by.deputy.user_id == ""`:                             {{Text: "payload.changed_by.deputy.user_id", Value: ""}},
		`payload.signals[1].weight > 1`:                                       {{Text: "payload.signals[1].weight", Value: int64(20)}},
		`payload.signals[9].weight > 1`:                                       {{Text: "payload.signals[9].weight", Error: "index out of bounds: 9"}},
		`payload.tags.exists(t, t == event.type)`:                             {{Text: "payload.tags", Value: []any{"red", "blue"}}, {Text: "event.type", Value: "case_status_changed"}},
		`["a"].exists(payload, payload == .payload.new_status)`:               {{Text: ".payload.new_status", Value: "approved"}},
		`payload.tags[payload.score - 78] == "red"`:                           {{Text: "payload.tags", Value: []any{"red", "blue"}}, {Text: "payload.score", Value: int64(78)}},
		`any.none == 1 || any.meta.source == "x" || any["meta"]["none"] == 1`: {{Text: "any.none", Error: "no such key: none"}, {Text: "any.meta.source", Value: "portal"}, {Text: `any["meta"]["none"]`, Error: "no such key: none"}},
		`has(any.meta.source) && has(any.meta.none) && !has(any.none.x)`:      {{Text: "has(any.meta.source)", Value: true}, {Text: "has(any.meta.none)", Value: false}, {Text: "has(any.none.x)", Error: "no such key: none"}},
		`event.occurred_at > timestamp(0)`:                                    {{Text: "event.occurred_at", Value: v.Event.OccurredAt}},
		`size(payload.note) > 1 && payload.labels.team == "x"`:                {{Text: "payload.note", Value: "wizard completed"}, {Text: "payload.labels.team", Value: "north"}},
		`(payload.urgent ? payload.changed_by : payload.changed_by.deputy).user_id == ""`: {
			{Text: "payload.urgent", Value: false}, {Text: "payload.changed_by", Value: map[string]any{"user_id": "u1", "role": "case_handler"}}, {Text: "payload.changed_by.deputy", Value: map[string]any{}},
		},
	} {
		p, err := scope.Compile(text, Bool)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := p.Explain(v, everything)
		if !reflect.DeepEqual(got, want) && !strings.HasPrefix(text, `["a"]`) {
			t.Errorf("%s:\n%+v\nnot\n%+v", text, got, want)
		}
		if strings.HasPrefix(text, `["a"]`) && (len(got) != 1 || got[0].Value != "approved") {
			t.Errorf("%s: %+v", text, got)
		}
	}
	p, err := scope.Compile(`payload.new_status == any.x`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p.Explain(&Values{}, everything))
	if want := `[{"text":"payload.new_status","value":""},{"text":"any.x","value":null,"error":"no such key: x"}]`; err != nil || string(text) != want {
		t.Errorf("without values: %s, %v", text, err)
	}
}

// TestExplainIsBounded shows that large values are cut.
func TestExplainIsBounded(t *testing.T) {
	t.Parallel()
	scope, _ := caseScope(t)
	p, err := scope.Compile(`any == any.x`, Bool)
	if err != nil {
		t.Fatal(err)
	}
	wide, deep := map[string]any{}, any("x")
	for i := range 1000 {
		wide[fmt.Sprintf("key %d %s", i, strings.Repeat("é", 500))] = []any{strings.Repeat("é", 50_000), wide["none"]}
		deep = []any{deep, strings.Repeat("a", 1000)}
	}
	for _, x := range []any{wide, deep, strings.Repeat("é", 50_000), make([]any, 1000)} {
		text, err := json.Marshal(p.Explain(&Values{Vars: []any{nil, map[string]any{"x": x}}}, everything))
		if err != nil || len(text) > 4*maxTerm || !strings.Contains(string(text), "…") && len(text) > 1000 {
			t.Errorf("%T: %d bytes, %v", x, len(text), err)
		}
	}
	list := make([]any, 12)
	size := maxTerm
	if got := excerpt(list, 0, &size).([]any); len(got) != 11 || got[10] != "… 2 more" {
		t.Errorf("twelve elements: %v", got)
	}
	size = maxTerm
	if got := excerpt(map[string]any{"a": int64(1), "b": 1.5, "c": true, "d": nil, "e": "é"}, 0, &size); !reflect.DeepEqual(got, map[string]any{"a": int64(1), "b": 1.5, "c": true, "d": nil, "e": "é"}) {
		t.Errorf("a small object: %v", got)
	}
}

func everything(int) bool { return true }
