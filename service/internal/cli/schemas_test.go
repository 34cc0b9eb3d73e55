package cli_test

import (
	"strings"
	"testing"
)

func TestSchemas(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	list := object[struct {
		Schemas []struct {
			EventType string
			Version   int
			ID        string
		}
	}](t, e, "schemas").Schemas
	if len(list) == 0 || !strings.Contains(e.ok(t, "schemas"), "courier-events-dlq") {
		t.Errorf("the list: %+v", list)
	}
	for _, s := range list {
		for _, args := range [][]string{{s.EventType}, {s.EventType, "--schema-version", "1", "--json"}} {
			one := decode[map[string]any](t, e.ok(t, append([]string{"schemas"}, args...)...))
			if one["$id"] != s.ID {
				t.Errorf("%s: %v", args, one)
			}
		}
	}
	if r := e.run(t, "schemas", "nothing"); r.code != 1 || !strings.Contains(r.stderr, "courier-event version 1") {
		t.Errorf("got %+v", r)
	}
	if r := e.run(t, "schemas", "--schema-version", "1"); r.code != 2 {
		t.Errorf("got %+v", r)
	}
}
