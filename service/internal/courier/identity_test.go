package courier

import (
	"regexp"
	"testing"
)

func TestEventID(t *testing.T) {
	t.Parallel()
	pairs := [][2]string{
		{"courier-x", "evt_1"}, {"courier-y", "evt_1"}, {"courier-x", "evt_2"}, {"evt_1", "courier-x"},
		{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"abc", ""}, {"a,b", "c"}, {"a", "b,c"}, {"a\x00", "b"}, {"a", "\x00b"},
	}
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string][2]string{}
	for _, p := range pairs {
		id := EventID(p[0], p[1])
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q share %s", p, other, id)
		}
		if seen[id] = p; !form.MatchString(id) {
			t.Errorf("%s is no UUIDv8", id)
		}
	}
	// The name is stored: it must not change with a release.
	if got, want := EventID("courier-x", "courier-x:evt_123"), "3f007dcf-4882-80aa-9924-4305d41b9505"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCanonicalHash(t *testing.T) {
	t.Parallel()
	hash := CanonicalHash([]byte(valid))
	if len(hash) != 64 {
		t.Fatalf("%q is no SHA-256", hash)
	}
	if got := CanonicalHash([]byte("\n" + valid + " ")); got != hash {
		t.Error("white space changes the hash")
	}
	if CanonicalHash([]byte(`{"a":9007199254740993}`)) == CanonicalHash([]byte(`{"a":9007199254740992}`)) {
		t.Error("numbers beyond 2^53 are rounded")
	}
	if CanonicalHash([]byte(`{"a":1,"b":2}`)) != CanonicalHash([]byte(`{"b":2.0,"\u0061":1e0}`)) {
		t.Error("the way of writing changes the hash")
	}
}
