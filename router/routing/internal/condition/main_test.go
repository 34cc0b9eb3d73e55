package condition

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decoded is JSON with numbers as they are written.
func decoded(tb testing.TB, text string) any {
	tb.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return v
}

func schema(tb testing.TB, name, text string, definitions map[string]any) *Schema {
	tb.Helper()
	s, err := CompileSchema(name, decoded(tb, text), definitions)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
