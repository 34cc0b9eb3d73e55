package celmatch_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/celmatch"
)

func letter(payload string) eventing.DeadLetter {
	return eventing.DeadLetter{
		EventID: "evt_1", Consumer: "billing", EventType: "order.placed", Stage: eventing.StageHandle, Reason: "TIMEOUT", AttemptCount: 3,
		CreatedAt: time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC),
		Payload: []byte(`{"event_id":"evt_1","event_type":"order.placed","occurred_at":"2026-02-26T12:00:00Z","correlation_id":"c","tenant_id":"acme","station_id":"",` +
			`"aggregate_type":"order","aggregate_id":"7","schema_version":1,"payload":` + payload + `}`),
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	const payload = `{"amount":250.5,"count":3,"big":9007199254740993,"tags":["a","b"],"note":null}`
	for expression, want := range map[string]bool{
		`payload.amount > 100`:                           true,
		`payload.amount > 100 && event.type == "x"`:      false,
		`payload.count == 3 && payload.count < 3.5`:      true,
		`payload.big == 9007199254740993`:                true,
		`payload.big == 9007199254740992`:                false,
		`"b" in payload.tags && size(payload.tags) == 2`: true,
		`has(payload.missing)`:                           false,
		`payload.note == null`:                           true,
		`event.tenant_id == "acme"`:                      true,
		`event.ordering_key == "order/7"`:                true,
		`letter.consumer == "billing" && letter.reason == "TIMEOUT" && letter.attempts == 3`: true,
		`letter.died_at < timestamp("2026-02-26T12:00:01Z")`:                                 true,
		`event.type.startsWith("order.") && event.id.matches("^evt_[0-9]+$")`:                true,
	} {
		m, err := celmatch.Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		if got, err := m.Matches(letter(payload)); err != nil || got != want {
			t.Errorf("%s: %t, %v; want %t", expression, got, err, want)
		}
	}
}

func TestFaultsShowTheirPlace(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`payload.amount >`:                                  "line 1, column 17: Syntax error",
		`payload.amount > 100 && evnt.type == "x"`:          "line 1, column 25: undeclared reference to 'evnt'",
		"payload.amount > 100 &&\n  evnt.type == \"x\"":     "\n      evnt.type == \"x\"\n      ^",
		`event.typ == "x"`:                                  "line 1, column 6: undefined field 'typ'",
		`letter.age > 1`:                                    "line 1, column 7: undefined field 'age'",
		`event.type`:                                        "yields a string; it must yield a bool",
		`letter.attempts == "3"`:                            "no matching overload",
		`size(payload)`:                                     "yields a int; it must yield a bool",
		strings.Repeat("(", 1000):                           "recursion limit",
		`event.type == "` + strings.Repeat("x", 5000) + `"`: "4096 are the most",
		`payload.amount > 100 ? true : "no"`:                "column",
		`event.id.matches(payload.pattern)`:                 "must be a literal",
		`matches(event.id, event.id + event.id)`:            "must be a literal",
		``:                                                  "does not compile",
	} {
		if _, err := celmatch.Compile(expression); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want %q", expression, err, want)
		}
	}
}

func TestUndecided(t *testing.T) {
	t.Parallel()
	compile := func(expression string) *celmatch.Match {
		m, err := celmatch.Compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	list := "[" + strings.Repeat("1,", 2000) + "1]"
	lists := "[" + strings.Repeat(list+",", 400) + list + "]"
	for _, test := range []struct{ expression, payload, want string }{
		{`payload.amount > 100`, `{}`, "no such key: amount"},
		{`payload.amount > 100`, `{"amount":"much"}`, "no such overload"},
		{`payload.amount > 100`, `null`, "no such"},
		{`payload.flag`, `{"flag":1}`, "not a bool"},
		{`payload.all(a, payload.all(b, a == b))`, list, "cost limit|longer than 1s"}, // whichever comes first
		{`payload.all(a, payload.all(b, [a] == [b]))`, lists, "longer than 1s"},
	} {
		if got, err := compile(test.expression).Matches(letter(test.payload)); got || err == nil || !regexp.MustCompile(test.want).MatchString(err.Error()) {
			t.Errorf("%s of %.30s: %t, %v; want %q", test.expression, test.payload, got, err, test.want)
		}
	}
	broken := letter(`{}`)
	broken.Payload = []byte("nonsense")
	if got, err := compile(`payload == null && event.type == "order.placed"`).Matches(broken); err != nil || !got {
		t.Errorf("undecodable: %t, %v", got, err)
	}
}
