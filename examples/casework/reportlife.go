package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing/eventlog"
)

// life tells all that happened to a case, from the audit log, in the order of time.
func (r report) life(ctx context.Context, l *life) error {
	rows := []string{"time\tevent\t\tby\ttrace"}
	for e, err := range r.log.Each(ctx, r.db.read, eventlog.Filter{AggregateType: caseAggregate, AggregateID: l.caseID}) {
		if err != nil {
			return err
		}
		trace, _ := e.Metadata["trace_id"].(string)
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", e.OccurredAt.Format("Jan 02 15:04:05.000"), e.Type, detail(e.Payload), e.Metadata["actor_role"], trace[:min(len(trace), 8)]))
	}
	return r.rows(rows)
}

// details are the fields of payloads that tell the most about them, with what goes before them.
var details = []struct{ field, before string }{
	{"previous_status", ""},
	{"new_status", " → "},
	{"transition_reason", ", "},
	{"service_type", ""},
	{"document_type", ""},
	{"verification_result", ""},
	{"rejection_reason", ""},
	{"result", ""},
	{"original_result", ""},
	{"override_result", " → "},
	{"signal_type", ""},
	{"previous_score", ""},
	{"new_score", " → "},
	{"risk_level", " "},
	{"recommended_action", ", "},
	{"channel", ""},
	{"recipient", " to "},
	{"status", ", "},
	{"failure_reason", ", "},
	{"closure_reason", ""},
	{"reopen_reason", ""},
	{"subema_reference", ""},
}

// detail says in a few words what a payload says.
func detail(payload json.RawMessage) string {
	fields := map[string]any{}
	if err := json.Unmarshal(payload, &fields); err != nil {
		return err.Error()
	}
	var text strings.Builder
	for _, d := range details {
		if value, there := fields[d.field]; there {
			text.WriteString(d.before + fmt.Sprint(value))
		}
	}
	const most = 60
	words := []rune(strings.TrimLeft(text.String(), ", "))
	if len(words) > most {
		words = append(slices.Clip(words[:most-1]), '…')
	}
	return string(words)
}
