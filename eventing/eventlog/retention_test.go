package eventlog_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

func day(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05.999999999", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Nothing goes before it is due, also in a leap year.
func TestBorder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keep      eventing.Period
		now, want string
	}{
		{eventing.Period{Years: 7}, "2026-02-26 12:00:00", "2019-02-26 12:00:00"},
		{eventing.Period{Years: 7}, "2028-02-28 12:00:00", "2021-02-28 12:00:00"},
		{eventing.Period{Years: 7}, "2028-02-29 12:00:00", "2021-02-28 12:00:00"}, // of 1 March 2021, nothing goes yet
		{eventing.Period{Years: 7}, "2028-03-01 00:00:00", "2021-03-01 00:00:00"},
		{eventing.Period{Years: 7}, "2027-02-28 12:00:00", "2020-02-28 12:00:00"}, // of 29 February 2020, nothing goes yet
		{eventing.Period{Years: 7}, "2027-03-01 00:00:00", "2020-03-01 00:00:00"},
		{eventing.Period{Years: 4}, "2028-02-29 12:00:00", "2024-02-29 12:00:00"},
		{eventing.Period{Years: 1}, "2100-02-28 12:00:00", "2099-02-28 12:00:00"}, // no leap year
		{eventing.Period{Days: 90}, "2028-03-01 12:00:00", "2027-12-02 12:00:00"},
		{eventing.Period{Rest: time.Hour}, "2028-03-01 00:30:00", "2028-02-29 23:30:00"},
		{eventing.Period{Rest: time.Hour}, "2028-03-01 00:30:00.123456789", "2028-02-29 23:30:00.123456"},
		{eventing.Period{Years: 1, Days: 1, Rest: time.Hour}, "2029-03-01 00:30:00", "2028-02-27 23:30:00"},
	} {
		got, ok := eventlog.Border(c.keep, day(t, c.now).In(time.FixedZone("", -5*3600)))
		if !ok || !got.Equal(day(t, c.want)) {
			t.Errorf("%v before %s is %v, want %s", c.keep, c.now, got, c.want)
		}
	}
	if _, ok := eventlog.Border(eventing.Period{Years: 3000}, noon); ok {
		t.Error("nothing is older than the year 1")
	}
}

func TestBorderIsNeverEarly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		keep := eventing.Period{
			Years: rapid.IntRange(0, 100).Draw(r, "years"), Days: rapid.IntRange(0, 800).Draw(r, "days"),
			Rest: time.Duration(rapid.Int64Range(0, int64(50*time.Hour)).Draw(r, "rest")),
		}
		day := time.Date(1900, 1, rapid.IntRange(1, 100_000).Draw(r, "day"), 0, 0, rapid.IntRange(0, 86_399).Draw(r, "second"), 0, time.UTC)
		now := rapid.SampledFrom([]time.Time{day, time.Date(4*rapid.IntRange(501, 599).Draw(r, "leap"), 2, 29, 12, 0, 0, 0, time.UTC)}).Draw(r, "now")
		kept := func(t time.Time) time.Time { return t.AddDate(keep.Years, 0, keep.Days).Add(keep.Rest) }
		got, _ := eventlog.Border(keep, now)
		if kept(got).After(now) || !kept(got.AddDate(0, 0, 2)).After(now) {
			r.Fatalf("what is older than %v goes at %v: not two days late at most, and never early", got, now)
		}
	})
}

func TestRetentionIsChecked(t *testing.T) {
	t.Parallel()
	year := eventing.Period{Years: 1}
	list := strings.Fields
	for _, c := range []struct {
		name      string
		retention []eventing.Retention
		want      string // of the error; empty: none
	}{
		{"none", nil, ""},
		{"good", []eventing.Retention{
			{Category: "audit", Types: list("login login"), Keep: year},
			{Category: "case", Types: list("created closed reopened"), Keep: year, After: list("closed"), Unless: list("reopened")},
			{Category: "document", Types: list("uploaded"), Keep: year, After: list("closed"), Unless: list("reopened undeclared")},
			{Category: "unused", Keep: year},
		}, ""},
		{"no name", []eventing.Retention{{Types: list("a"), Keep: year}}, "no name"},
		{"no period", []eventing.Retention{{Category: "audit", Types: list("a")}}, "category audit: Keep is missing"},
		{"negative", []eventing.Retention{{Category: "audit", Types: list("a"), Keep: eventing.Period{Days: -1}}}, "category audit: Keep is"},
		{"twice", []eventing.Retention{{Category: "audit", Keep: year}, {Category: "audit", Keep: year}}, "category audit: it is there twice"},
		{"of two", []eventing.Retention{{Category: "audit", Types: list("a b"), Keep: year}, {Category: "case", Types: list("c b"), Keep: year}}, "event type b: it is of the categories audit and case"},
		{"unless nothing", []eventing.Retention{{Category: "case", Types: list("a"), Keep: year, Unless: list("b")}}, "say which events end the life that b"},
		{"both", []eventing.Retention{{Category: "case", Types: list("a"), Keep: year, After: list("b"), Unless: list("b")}}, "b is in After and in Unless"},
		{"star", []eventing.Retention{{Category: "case", Types: list("*"), Keep: year}}, `"*" is no event type`},
		{"empty type", []eventing.Retention{{Category: "case", After: []string{""}, Keep: year}}, `"" is no event type`},
		{"each waits for the other", []eventing.Retention{
			{Category: "x", Types: list("a"), Keep: year, After: list("b")},
			{Category: "y", Types: list("b"), Keep: year, After: list("a")},
		}, "category x: whether"},
		{"each waits for the next", []eventing.Retention{
			{Category: "w", Types: list("d"), Keep: year, After: list("a")},
			{Category: "x", Types: list("a"), Keep: year, After: list("b")},
			{Category: "y", Types: list("b"), Keep: year, After: list("c")},
			{Category: "z", Types: list("c"), Keep: year, After: list("a")},
		}, "category x: whether"},
	} {
		_, err := eventlog.New(eventlog.Config{Dialect: eventlog.SQLite, Retention: c.retention})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
