package condition

import (
	"reflect"
	"strings"
	"testing"
)

// A parsed expression is the same in each scope as if it had been parsed for it, whatever other scopes have made of it.
func TestScopesShareExpressions(t *testing.T) {
	t.Parallel()
	one, _ := caseScope(t)
	other, err := NewScope(Variable{"payload", schema(t, "other/1", `{"type": "object", "properties": {"score": {"type": "string"}}}`, nil)}, Variable{"any", nil})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := NewScope(Variable{"payload", nil})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(bombs(), append(expressions, `[1].exists(payload, payload == .payload.score)`, `.any.x == .payload`, `payload.score = 1`)...) {
		if len(text) > 1000 {
			continue // for the time that it takes
		}
		shared := Parse(text)
		for _, scope := range []*Scope{one, bare, other, one} {
			got, gotErr := scope.CompileParsed(shared, Bool)
			want, wantErr := scope.Compile(text, Bool)
			if !reflect.DeepEqual(gotErr, wantErr) {
				t.Fatalf("%.80s: %v; want %v", text, gotErr, wantErr)
			}
			if gotErr != nil {
				continue
			}
			if got.Key() != want.Key() || !reflect.DeepEqual(got.Uses(), want.Uses()) || got.constant != want.constant || !reflect.DeepEqual(got.Impossible(), want.Impossible()) {
				t.Fatalf("%.80s: %s uses %v; want %s, %v", text, got.Key(), got.Uses(), want.Key(), want.Uses())
			}
		}
	}
}

func TestWordsAndSigns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, " \n": 0, "a": 1, "a_1 b": 2, "payload.a == 1": 6, `"a b" + é`: 6, "[1,2]": 5, strings.Repeat("!", 100): 100, "//a\nb": 4,
	} {
		if got := Words(text); got != want {
			t.Errorf("%q has %d words and signs; want %d", text, got, want)
		}
	}
}
