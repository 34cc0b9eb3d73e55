package routing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

// generateEvents draws events for a file: most of them as it wants them. Each has an ordering key of its own.
func generateEvents(t *rapid.T, f *file, n int) []eventing.Envelope {
	events := make([]eventing.Envelope, rapid.IntRange(1, n).Draw(t, "events"))
	types := sorted(f.Events)
	types = slices.Concat(types, types, types, types, []string{typeNames[0], "unheard_of"})
	for i := range events {
		e := &events[i]
		e.ID = fmt.Sprintf("event-%d", i)
		e.Type = rapid.SampledFrom(types).Draw(t, "type")
		e.SchemaVersion = 1
		if part := f.Events[e.Type]; part != nil && len(part.Schemas) > 0 {
			e.SchemaVersion = len(part.Schemas)
		}
		if chance(t, "another version", 6) {
			e.SchemaVersion = rapid.IntRange(1, 3).Draw(t, "version")
		}
		e.OccurredAt, e.CorrelationID = time.Date(2026, 2, 26, 12, 0, i, 0, time.UTC), e.ID
		e.TenantID = rapid.SampledFrom([]string{"", "t1", "t2"}).Draw(t, "tenant")
		e.AggregateType, e.AggregateID = "case", rapid.SampledFrom([]string{"k1", "k2", "none"}).Draw(t, "aggregate")
		e.OrderingKey = e.ID
		e.Payload = generatePayload(t)
	}
	return events
}

func generatePayload(t *rapid.T) json.RawMessage {
	p := map[string]any{
		"key": rapid.SampledFrom(lookupKeys).Draw(t, "key"), "amount": rapid.IntRange(0, 3).Draw(t, "amount"),
		"status": rapid.SampledFrom(statuses).Draw(t, "status"),
	}
	optional := map[string]func() any{
		"ratio":  func() any { return rapid.SampledFrom([]float64{0, 0.25, 1}).Draw(t, "ratio") },
		"urgent": func() any { return rapid.Bool().Draw(t, "urgent") },
		"note":   func() any { return rapid.SampledFrom([]string{"", "abc", "xyz"}).Draw(t, "note") },
		"tags":   func() any { return some(t, "tags", words, 0) },
		"by":     func() any { return map[string]any{"role": rapid.SampledFrom(words).Draw(t, "role")} },
		"other":  func() any { return "of no interest" },
	}
	for _, name := range sorted(optional) {
		if rapid.Bool().Draw(t, name) {
			p[name] = optional[name]()
		}
	}
	switch rapid.IntRange(0, 15).Draw(t, "violation") {
	case 13:
		p["amount"] = "many"
	case 14:
		delete(p, "key")
	case 15:
		return json.RawMessage(`"a text"`)
	}
	text, _ := json.Marshal(p) // plain values always encode
	return text
}

// functions are lookups of a program that find the same.
func functions(f *file, l routing.Lookups) map[string]routing.LookupFunc {
	funcs := map[string]routing.LookupFunc{}
	for name := range f.Lookups {
		results := l[name]
		funcs[name] = func(_ context.Context, key string) (any, error) {
			raw, there := results[key]
			if !there {
				return nil, errNotThere
			}
			var failure struct {
				Error  string `json:"$error"`
				Reason string `json:"$reason"`
			}
			switch err := json.Unmarshal(raw, &failure); {
			case err != nil:
				return nil, err
			case failure.Reason != "":
				return nil, eventing.PermanentWithReason(eventing.ReasonCode(failure.Reason), errors.New(failure.Error))
			case failure.Error != "":
				return nil, errors.New(failure.Error)
			}
			return raw, nil
		}
	}
	return funcs
}

// upcasters bring payloads without a status to one, but for some.
func upcasters(f *file) []routing.Upcaster {
	var list []routing.Upcaster
	for _, name := range sorted(f.Events) {
		if len(f.Events[name].Schemas) < 2 {
			continue
		}
		list = append(list, routing.Upcaster{EventType: name, From: 1, Upcast: func(raw json.RawMessage) (json.RawMessage, error) {
			var p map[string]any
			if err := json.Unmarshal(raw, &p); err != nil {
				return nil, err
			}
			if p["note"] == "xyz" {
				return nil, errors.New("nobody knows what that was")
			}
			p["status"] = "new"
			return json.Marshal(p)
		}})
	}
	return list
}
