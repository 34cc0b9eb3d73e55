package eventing_test

import (
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/waybill-go/waybill/eventing"
)

func TestParsePeriod(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]eventing.Period{
		"250ms":  {Rest: 250 * time.Millisecond},
		"30s":    {Rest: 30 * time.Second},
		"5m":     {Rest: 5 * time.Minute}, // minutes, not months
		"12h":    {Rest: 12 * time.Hour},
		"1h30m":  {Rest: 90 * time.Minute},
		"1.5h":   {Rest: 90 * time.Minute},
		"0":      {},
		"0s":     {},
		"0d":     {},
		"1d":     {Days: 1},
		"090d":   {Days: 90},
		"90d":    {Days: 90},
		"2w":     {Days: 14},
		"7y":     {Years: 7},
		"10000y": {Years: 10_000},
		"10000w": {Days: 70_000},
	} {
		if got, err := eventing.ParsePeriod(text); err != nil || got != want {
			t.Errorf("%s is %#v, not %#v; %v", text, got, want, err)
		}
	}
	for _, text := range []string{
		"", " ", "d", "y", "30", "30 s", "d7", "7Y", "7months", "1.5d", "-1d", "-1s", "+-1d", "1d12h", "1y1d", "10001y", "10001d", "99999999999999999999d", "0x10d", "1_0d", "١d", "inf", "9999999h",
	} {
		got, err := eventing.ParsePeriod(text)
		if err == nil || !strings.Contains(err.Error(), "write 250ms, 30s, 5m, 12h, 90d, 2w or 7y") || got != (eventing.Period{}) {
			t.Errorf("%q is no period, got %v, %v", text, got, err)
		}
	}
}

// Years and days are the calendar's: across a leap day, a change of the clocks, the end of a month.
func TestPeriodBefore(t *testing.T) {
	t.Parallel()
	amsterdam, err := time.LoadLocation("Europe/Amsterdam")
	if err != nil {
		t.Fatal(err)
	}
	utc := func(year int, month time.Month, day, hour int) time.Time {
		return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
	}
	for _, c := range []struct {
		period   string
		from, to time.Time
	}{
		{"7y", utc(2026, time.November, 22, 6), utc(2019, time.November, 22, 6)},
		{"1y", utc(2025, time.February, 28, 6), utc(2024, time.February, 28, 6)},
		{"1y", utc(2024, time.February, 29, 6), utc(2023, time.March, 1, 6)},
		{"4y", utc(2024, time.February, 29, 6), utc(2020, time.February, 29, 6)},
		{"1d", utc(2024, time.March, 1, 6), utc(2024, time.February, 29, 6)},
		{"2w", utc(2026, time.January, 1, 6), utc(2025, time.December, 18, 6)},
		{"90d", utc(2026, time.March, 31, 6), utc(2025, time.December, 31, 6)},
		{"36h", utc(2026, time.March, 2, 6), utc(2026, time.February, 28, 18)},
		{"0s", utc(2026, time.March, 2, 6), utc(2026, time.March, 2, 6)},
		{"1d", time.Date(2026, time.March, 29, 12, 0, 0, 0, amsterdam), time.Date(2026, time.March, 28, 12, 0, 0, 0, amsterdam)}, // 23 hours
		{"24h", time.Date(2026, time.March, 29, 12, 0, 0, 0, amsterdam), time.Date(2026, time.March, 28, 11, 0, 0, 0, amsterdam)},
	} {
		p, err := eventing.ParsePeriod(c.period)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Before(c.from); !got.Equal(c.to) {
			t.Errorf("%s before %v is %v, not %v", c.period, c.from, got, c.to)
		}
	}
	if got := (eventing.Period{Years: 10_000, Rest: time.Hour}).Duration(); got != math.MaxInt64 {
		t.Errorf("10000 years are %v", got)
	}
	all := eventing.Period{Years: 1, Days: 1, Rest: time.Hour}
	if got, want := all.Before(utc(2026, time.March, 2, 6)), utc(2025, time.March, 1, 5); !got.Equal(want) {
		t.Errorf("%v before is %v, not %v", all, got, want)
	}
}

func TestPeriodDuration(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{"90d": 90 * day, "2w": 14 * day, "1y": 365 * day, "7y": 2555 * day, "90m": 90 * time.Minute, "0d": 0} {
		p, err := eventing.ParsePeriod(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Duration(); got != want {
			t.Errorf("%s is %v, not %v", text, got, want)
		}
		if p.IsZero() != (want == 0) {
			t.Errorf("%s: IsZero is %v", text, p.IsZero())
		}
	}
	if got, want := (eventing.Period{Years: 1, Days: 1, Rest: 1}).Duration(), 366*day+1; got != want {
		t.Errorf("all together are %v, not %v", got, want)
	}
}

func TestPeriodString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"7y": "7y", "90d": "90d", "2w": "14d", "90s": "1m30s", "0s": "0s", "0y": "0s"} {
		p, err := eventing.ParsePeriod(text)
		if err != nil {
			t.Fatal(err)
		}
		if p.String() != want {
			t.Errorf("%s is printed as %s, not %s", text, p, want)
		}
		if again, err := eventing.ParsePeriod(p.String()); err != nil || again != p {
			t.Errorf("%s is read again as %v, %v", p, again, err)
		}
	}
	if got := (eventing.Period{Years: 1, Days: 2, Rest: time.Second}).String(); got != "1y2d1s" {
		t.Errorf("a mixed period is printed as %s", got)
	}
}
