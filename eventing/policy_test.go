package eventing

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The delays that the reference gateway and the routing framework document.
func TestRetryFormulas(t *testing.T) {
	t.Parallel()
	gateway := RetryPolicy{MaxAttempts: 5, Base: time.Second, Multiplier: 2, Jitter: 0.2}
	framework := RetryPolicy{MaxAttempts: 6, Base: time.Second, Multiplier: 2, FirstExponent: 1, Max: 20 * time.Second, Jitter: 0.1, JitterBasis: JitterOfBase}
	for _, c := range []struct {
		name    string
		policy  RetryPolicy
		attempt int
		random  float64
		want    time.Duration
	}{
		{"gateway", gateway, 1, 0, time.Second},
		{"gateway", gateway, 1, 0.5, 1100 * time.Millisecond},
		{"gateway", gateway, 2, 0, 2 * time.Second},
		{"gateway", gateway, 4, 0, 8 * time.Second},
		{"gateway", gateway, 4, 0.25, 8400 * time.Millisecond},
		{"framework", framework, 1, 0, 2 * time.Second},
		{"framework", framework, 1, 0.5, 2050 * time.Millisecond},
		{"framework", framework, 3, 0.5, 8050 * time.Millisecond},
		{"framework", framework, 5, 0.5, 20 * time.Second},
		{"default", RetryPolicy{}, 3, 0.9, 4 * time.Second},
		{"attempt 0 is as 1", RetryPolicy{}, 0, 0, time.Second},
		{"does not overflow", RetryPolicy{Base: time.Hour, Multiplier: 10}, 100, 0.9, maxDelay},
	} {
		if got := c.policy.Delay(c.attempt, c.random); got != c.want {
			t.Errorf("%s: after attempt %d with random %v wait %v, got %v", c.name, c.attempt, c.random, c.want, got)
		}
	}
}

func drawRetry(t *rapid.T) RetryPolicy {
	return RetryPolicy{
		MaxAttempts:   rapid.IntRange(1, maxAttempts).Draw(t, "MaxAttempts"),
		Base:          time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "Base")),
		Multiplier:    rapid.Float64Range(1, 10).Draw(t, "Multiplier"),
		FirstExponent: rapid.IntRange(0, 3).Draw(t, "FirstExponent"),
		Max:           time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "Max")),
		Jitter:        rapid.Float64Range(0, 1).Draw(t, "Jitter"),
		JitterBasis:   rapid.SampledFrom([]JitterBasis{JitterOfDelay, JitterOfBase}).Draw(t, "JitterBasis"),
	}
}

func TestDelayProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawRetry(t)
		attempt := rapid.IntRange(1, maxAttempts).Draw(t, "attempt")
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		got, least, most := p.Delay(attempt, random), p.Delay(attempt, 0), p.Delay(attempt, 1)
		switch {
		case got != p.Delay(attempt, random):
			t.Fatal("a delay is a pure function")
		case got <= 0 || got > maxDelay:
			t.Fatalf("a delay is positive and does not overflow: %v", got)
		case p.Max > 0 && got > p.Max:
			t.Fatalf("a delay, its jitter included, is bounded by Max: %v > %v", got, p.Max)
		case got < least || got > most:
			t.Fatalf("the jitter is an addition of at most its fraction: %v outside of %v … %v", got, least, most)
		case least > p.Delay(attempt+1, 0):
			t.Fatalf("without jitter delays do not shrink: %v, then %v", least, p.Delay(attempt+1, 0))
		}
	})
}

// The documents' formulas, in their own words, for any settings and every attempt.
func TestDelayIsTheDocuments(t *testing.T) {
	t.Parallel()
	same := func(t *rapid.T, formula string, got time.Duration, want float64) {
		if math.Abs(float64(got)-want) > 1 { // a nanosecond
			t.Fatalf("%s: wait %v, want %v", formula, got, time.Duration(want))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		initial := time.Duration(rapid.Int64Range(1, 5000).Draw(t, "initial, ms")) * time.Millisecond
		random := rapid.Float64Range(0, 0.999999).Draw(t, "random")
		attempts := rapid.IntRange(2, 12).Draw(t, "attempts")
		multiplier := float64(rapid.IntRange(1, 4).Draw(t, "multiplier"))
		jitterPercent := float64(rapid.IntRange(0, 100).Draw(t, "jitter, %"))
		longest := time.Duration(rapid.Int64Range(1, 600).Draw(t, "max, s")) * time.Second

		gateway := RetryPolicy{MaxAttempts: attempts, Base: initial, Multiplier: multiplier, Jitter: jitterPercent / 100}
		framework := RetryPolicy{MaxAttempts: attempts, Base: initial, FirstExponent: 1, Max: longest, Jitter: 0.1, JitterBasis: JitterOfBase}
		for attempt := 1; attempt < attempts; attempt++ {
			delay := float64(initial)
			for range attempt - 1 {
				delay *= multiplier
			}
			same(t, "gateway", gateway.Delay(attempt, random), delay+random*jitterPercent/100*delay)

			retryCount := attempt // of the retry that follows
			delay = float64(initial) * float64(int(1)<<retryCount)
			same(t, "framework", framework.Delay(attempt, random), min(delay+random*0.1*float64(initial), float64(longest)))
		}
	})
}

// The settings that the documents give, and the attempts and waits that follow.
func TestDocumentedSettings(t *testing.T) {
	t.Parallel()
	framework := func(retries int, initial, longest time.Duration) RetryPolicy {
		return RetryPolicy{MaxAttempts: retries + 1, Base: initial, FirstExponent: 1, Max: longest, Jitter: 0.1, JitterBasis: JitterOfBase}
	}
	for name, c := range map[string]struct {
		policy RetryPolicy
		waits  string  // without jitter
		most   float64 // that jitter adds to the first
	}{
		"gateway":             {RetryPolicy{MaxAttempts: 5, Base: time.Second, Multiplier: 2, Jitter: 0.2}, "1s 2s 4s 8s", 0.2},
		"audit log":           {framework(10, 100*time.Millisecond, time.Minute), "200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 51.2s 1m0s", 0.01},
		"notification engine": {framework(5, time.Second, 5*time.Minute), "2s 4s 8s 16s 32s", 0.1},
		"workflow engine":     {framework(3, 500*time.Millisecond, 10*time.Second), "1s 2s 4s", 0.05},
		"fraud engine":        {framework(5, time.Second, 2*time.Minute), "2s 4s 8s 16s 32s", 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Policy{Retry: c.policy}
			consumer := Consumer{cfg: ConsumerConfig{Policy: p.WithDefaults(), Now: time.Now, Random: func() float64 { return 0 }}}
			var waits []string
			r := Run{}
			for {
				f := consumer.failure(r, errors.New("busy"))
				if f.State == StateDead {
					break
				}
				waits = append(waits, f.DueAt.Sub(f.Now).String())
				r.Attempts, r.History = f.Attempts, f.History
			}
			if got := strings.Join(waits, " "); got != c.waits || len(waits) != c.policy.MaxAttempts-1 {
				t.Errorf("the waits between %d attempts are %s, want %s", c.policy.MaxAttempts, got, c.waits)
			}
			if got := (c.policy.Delay(1, 1) - c.policy.Delay(1, 0)).Seconds(); math.Abs(got-c.most) > 1e-9 {
				t.Errorf("jitter adds up to %vs to the first, want %vs", got, c.most)
			}
		})
	}
}

func TestHorizonCoversEveryWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Retry: drawRetry(t), Timeout: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "Timeout"))}
		var spent time.Duration
		for attempt := 1; attempt <= p.Retry.MaxAttempts; attempt++ {
			spent += p.Timeout
			if attempt < p.Retry.MaxAttempts {
				spent += p.Retry.Delay(attempt, rapid.Float64Range(0, 0.999999).Draw(t, "random"))
			}
			if spent >= maxDelay {
				return
			}
		}
		if horizon := p.Horizon(); spent > horizon {
			t.Fatalf("no way through the retries is longer than the horizon: %v > %v", spent, horizon)
		}
	})
}

func TestPolicyValidate(t *testing.T) {
	t.Parallel()
	if err := (Policy{}).Validate(); err != nil {
		t.Errorf("the zero policy is good: %v", err)
	}
	for field, p := range map[string]Policy{
		"Concurrency":         {Concurrency: -1},
		"Timeout":             {Timeout: -1},
		"Retry.MaxAttempts":   {Retry: RetryPolicy{MaxAttempts: 101}},
		"Retry.Base":          {Retry: RetryPolicy{Base: -1}},
		"Retry.Multiplier":    {Retry: RetryPolicy{Multiplier: 0.5}},
		"Retry.FirstExponent": {Retry: RetryPolicy{FirstExponent: -1}},
		"Retry.Max":           {Retry: RetryPolicy{Max: -1}},
		"Retry.Jitter":        {Retry: RetryPolicy{Jitter: 1.5}},
		"InboxRetention":      {InboxRetention: -1},
		"DeadLetterRetention": {DeadLetterRetention: -1},
		"Guarantee":           {Guarantee: "twice"},
		"Breaker.Failures":    {Breaker: BreakerPolicy{Failures: -1}},
		"Breaker.OpenFor":     {Breaker: BreakerPolicy{OpenFor: -1}},
		"freeze":              {OnExhausted: []string{ActionDeadLetter, ActionFreeze}},
	} {
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("a bad %s is named, got %v", field, err)
		}
	}
	err := Policy{InboxRetention: time.Minute, Timeout: 30 * time.Second, Retry: RetryPolicy{MaxAttempts: 2, Base: time.Hour}}.Validate()
	if err == nil || !strings.Contains(err.Error(), "1m0s") || !strings.Contains(err.Error(), "1h1m0s") {
		t.Errorf("an inbox that forgets before the last retry is refused with both numbers, got %v", err)
	}
}
