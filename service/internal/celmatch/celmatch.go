// Package celmatch decides about dead letters by a CEL expression, such as
// payload.amount > 100 && event.type == "order.placed".
package celmatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/ext"

	"github.com/waybill-go/waybill/eventing"
)

// The bounds of an expression, and of one decision by it.
const (
	maxExpression = 4096      // bytes
	maxCost       = 1_000_000 // CEL's units: about one for each step
	maxNesting    = 64
	maxTime       = time.Second // CEL does not count what comparing nested lists takes
	interruptions = 10          // steps of a loop from one look at the clock to the next
)

// event is what an expression sees of the envelope. Its fields are known to the compiler, so
// that one which does not exist is a fault of the expression, not of each dead letter.
type event struct {
	ID             string    `cel:"id"`
	Type           string    `cel:"type"`
	OccurredAt     time.Time `cel:"occurred_at"`
	CorrelationID  string    `cel:"correlation_id"`
	CausationID    string    `cel:"causation_id"`
	TenantID       string    `cel:"tenant_id"`
	StationID      string    `cel:"station_id"`
	AggregateType  string    `cel:"aggregate_type"`
	AggregateID    string    `cel:"aggregate_id"`
	OrderingKey    string    `cel:"ordering_key"`
	IdempotencyKey string    `cel:"idempotency_key"`
	SchemaVersion  int       `cel:"schema_version"`
}

// letter is what an expression sees of the dead letter.
type letter struct {
	Consumer string    `cel:"consumer"`
	Stage    string    `cel:"stage"`
	Reason   string    `cel:"reason"`
	Message  string    `cel:"message"`
	Status   string    `cel:"status"`
	Attempts int       `cel:"attempts"`
	DiedAt   time.Time `cel:"died_at"`
}

// Match is a compiled expression. Its Matches may be used by several goroutines.
type Match struct{ program cel.Program }

// Compile checks an expression, which must yield a bool and may use:
//
//   - payload: the event's, as JSON
//   - event: id, type, occurred_at, correlation_id, causation_id, tenant_id, station_id,
//     aggregate_type, aggregate_id, ordering_key, idempotency_key, schema_version
//   - letter: consumer, stage, reason, message, status, attempts, died_at
//
// with CEL's standard functions; the pattern of matches must be a literal. An event that does not decode has an id and a type, and a
// payload of null. The error shows the place of the fault.
func Compile(expression string) (*Match, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression has %d bytes; %d are the most", len(expression), maxExpression)
	}
	env, err := cel.NewEnv(
		ext.NativeTypes(reflect.TypeFor[event](), reflect.TypeFor[letter](), ext.ParseStructTags(true)),
		cel.Variable("payload", cel.DynType), cel.Variable("event", cel.ObjectType("celmatch.event")), cel.Variable("letter", cel.ObjectType("celmatch.letter")),
		cel.CrossTypeNumericComparisons(true), cel.ParserRecursionLimit(maxNesting),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, faults(expression, issues)
	}
	if out := checked.OutputType(); !out.IsExactType(cel.BoolType) && !out.IsExactType(cel.DynType) {
		return nil, fmt.Errorf("%q yields a %s; it must yield a bool", expression, out)
	}
	if err := literalPatterns(checked); err != nil {
		return nil, err
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptions))
	if err != nil {
		return nil, fmt.Errorf("compile %q: %w", expression, err)
	}
	return &Match{program}, nil
}

// literalPatterns refuses patterns that an event has a part in: compiling one takes as long as its
// author wants.
func literalPatterns(checked *cel.Ast) error {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(checked.NativeRep()), ast.FunctionMatcher("matches")) {
		args := call.AsCall().Args()
		if len(args) == 0 || args[len(args)-1].Kind() != ast.LiteralKind {
			return errors.New(`the pattern of matches must be a literal, as in event.id.matches("^evt_")`)
		}
	}
	return nil
}

// faults shows each fault under the line that it is in.
func faults(expression string, issues *cel.Issues) error {
	lines := strings.Split(expression, "\n")
	var b strings.Builder
	for _, e := range issues.Errors() {
		line, column := e.Location.Line(), e.Location.Column()
		fmt.Fprintf(&b, "\n  line %d, column %d: %s", line, column+1, e.Message)
		if line >= 1 && line <= len(lines) && column >= 0 {
			fmt.Fprintf(&b, "\n    %s\n    %s^", lines[line-1], strings.Repeat(" ", min(column, len(lines[line-1]))))
		}
	}
	return errors.New("the expression does not compile:" + b.String())
}

// Matches decides about a dead letter. It is an error if the expression asks for what the
// event has not, or has as another type, or for more work than is sensible: a million steps,
// or a second.
func (m *Match) Matches(dl eventing.DeadLetter) (bool, error) {
	e, payload, err := open(dl)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTime)
	defer cancel()
	out, _, err := m.program.ContextEval(ctx, map[string]any{"event": e, "payload": payload, "letter": letter{
		Consumer: dl.Consumer, Stage: string(dl.Stage), Reason: string(dl.Reason), Message: dl.Message, Status: string(dl.Status),
		Attempts: dl.AttemptCount, DiedAt: dl.CreatedAt,
	}})
	if err != nil && ctx.Err() != nil {
		return false, fmt.Errorf("to decide takes longer than %s", maxTime)
	}
	if err != nil {
		return false, err
	}
	yes, is := out.Value().(bool)
	if !is {
		return false, fmt.Errorf("the expression yields a %s, not a bool", out.Type().TypeName())
	}
	return yes, nil
}

// open takes an envelope apart.
func open(dl eventing.DeadLetter) (_ event, payload any, err error) {
	undecoded := event{ID: dl.EventID, Type: dl.EventType}
	if eventing.IsUndecodable(dl.EventID) {
		return undecoded, nil, nil
	}
	e, err := eventing.DecodeEnvelope(dl.Payload)
	if err != nil {
		return undecoded, nil, nil //nolint:nilerr // it has no payload to match
	}
	if payload, err = decode(e.Payload); err != nil {
		return event{}, nil, fmt.Errorf("the payload is not JSON: %w", err)
	}
	return event{
		ID: e.ID, Type: e.Type, OccurredAt: e.OccurredAt, CorrelationID: e.CorrelationID, CausationID: e.CausationID,
		TenantID: e.TenantID, StationID: e.StationID, AggregateType: e.AggregateType, AggregateID: e.AggregateID,
		OrderingKey: e.OrderKey(), IdempotencyKey: e.IdempotencyKey, SchemaVersion: e.SchemaVersion,
	}, payload, nil
}

// decode keeps whole numbers whole: as floats, large ids would be rounded.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows it")
	}
	return plain(v), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // beyond its range: infinite
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}
