package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/router/routing"
)

const auditLog = "audit_log"

// auditor is the audit log: every event, with who did it.
type auditor struct {
	log *eventlog.Log
	*switches
}

func (l *auditor) register(s *system) error {
	return handleTx(s, auditLog, "record", l.record)
}

func (l *auditor) record(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage], _ routing.Action) error {
	if sent, ok := eventing.EnvelopeFromContext(ctx); ok {
		e = sent // as it came: what the handler gets has been brought to the latest version
	}
	if err := l.pass(ctx, "audit log", e.AggregateID); err != nil {
		return err
	}
	metadata, err := described(e)
	if err != nil {
		return err
	}
	return l.log.Record(ctx, tx, e, metadata)
}

// doers are the fields that say who did something.
type doers struct {
	AssignedBy   *actor `json:"assigned_by"`
	ChangedBy    *actor `json:"changed_by"`
	ClearedBy    *actor `json:"cleared_by"`
	ClosedBy     *actor `json:"closed_by"`
	CreatedBy    *actor `json:"created_by"`
	OverriddenBy *actor `json:"overridden_by"`
	RejectedBy   *actor `json:"rejected_by"`
	ReopenedBy   *actor `json:"reopened_by"`
	UploadedBy   *actor `json:"uploaded_by"`
	VerifiedBy   *actor `json:"verified_by"`
}

// system is who does what nobody does.
var systemActor = actor{UserID: derived("user", "system"), Role: "system"}

// described returns what the log says about an event beside the event: the actor, the trace, and
// the hash of the IP address that the request came from.
func described(e eventing.Envelope) (map[string]any, error) {
	var d doers
	if err := json.Unmarshal(e.Payload, &d); err != nil {
		return nil, err
	}
	by := &systemActor
	for _, a := range []*actor{
		d.AssignedBy, d.ChangedBy, d.ClearedBy, d.ClosedBy, d.CreatedBy, d.OverriddenBy, d.RejectedBy, d.ReopenedBy, d.UploadedBy, d.VerifiedBy,
	} {
		if a != nil {
			by = a
		}
	}
	metadata := map[string]any{"actor_id": by.UserID, "actor_role": by.Role}
	if by.IPHash != "" {
		metadata["ip_hash"] = by.IPHash
	}
	// A traceparent is 00-TRACE-SPAN-FLAGS.
	if parts := strings.Split(e.TraceParent, "-"); len(parts) == 4 {
		metadata["trace_id"] = parts[1]
	}
	return metadata, nil
}
