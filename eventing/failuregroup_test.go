package eventing

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalizeError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":         "",
		" busy\n ": "busy",
		"dial tcp 10.1.2.3:5432: connect: connection refused":                    "dial tcp <addr>: connect: connection refused",
		"dial tcp [::1]:6379: i/o timeout":                                       "dial tcp <addr>: i/o timeout",
		"read from bank.example.com:443 after 1m30s, waited 1.5ms of 20 s":       "read from <addr> after <n>, waited <n> of <n> s",
		`no customer "7" in 'north' or ` + "`x`":                                 "no customer <text> in <text> or <text>",
		"order 0199a3f2-7c41-7d00-8f3a-0123456789ab is gone":                     "order <uuid> is gone",
		"2026-02-26T12:00:00.123Z: late; since 2026-02-25 11:00:01 +0100":        "<time>: late; since <time>",
		"pointer 0xc000123abc, hash deadbeef01, a decade12 ago, facade deadbeef": "pointer <hex>, hash <hex>, a <hex> ago, facade deadbeef",
		"status 503 (12345678), order-A17B, v1.2.3":                              "status <n> (<n>), order-A<n>B, v<n>",
		"can't reach the bank, which isn't 'north'":                              "can't reach the bank, which isn't <text>",
		"10sec and 3 of 4": "<n>sec and <n> of <n>",
		"\xff7":            "�<n>",
	} {
		if got := NormalizeError(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	long := NormalizeError(strings.Repeat("é ", 500))
	if len(long) > maxNormalizedBytes || !strings.HasSuffix(long, "…") || !utf8.ValidString(long) {
		t.Errorf("a long text is cut at %d bytes: %q", maxNormalizedBytes, long)
	}
}

func FuzzNormalizeError(f *testing.F) {
	for _, text := range []string{
		`don't say "no" to 'it's' 7 times`, "n't5 x'", "abcdefab-abcd-abcd-abcd-abcdefabcdefg", "[a:b]:7 [::1%eth0]:9", "1h2m3sx",
		strings.Repeat(`"a' `, 100), "x.y.z:80 2026-01-02T03:04", strings.Repeat("deadbeef", 60), "0x1g 5'a'",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := NormalizeError(text)
		if again := NormalizeError(once); again != once {
			t.Errorf("%q becomes %q and then %q", text, once, again)
		}
		if len(once) > maxNormalizedBytes || !utf8.ValidString(once) || strings.ContainsAny(once, "0123456789") {
			t.Errorf("%q becomes %q", text, once)
		}
	})
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	groups := failureGroups{}
	for i := range maxGroups + 50 {
		groups.add(DeadLetter{EventID: "e", Consumer: "billing", Reason: "REJECTED", Message: strings.Repeat("x", i%200) + strings.Repeat("y", i/200)})
	}
	list := groups.list()
	if len(list) != maxGroups+1 || list[0].Error != OtherFailures || list[0].Count != 50 {
		t.Errorf("got %d groups, the first %+v; want %d, the first of the 50 that are beyond", len(list), list[0], maxGroups+1)
	}
}
