package middleware

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/waybill-go/waybill/eventing"
)

// The reason codes of [Schemas].
const (
	// ReasonSchemaViolation: the payload does not satisfy the schema of its event type and version.
	ReasonSchemaViolation eventing.ReasonCode = "SCHEMA_VIOLATION"
	// ReasonSchemaUnknown: there is no schema for the event type and version.
	ReasonSchemaUnknown eventing.ReasonCode = "SCHEMA_UNKNOWN"
)

// Bounds of [Schemas].
const (
	MaxSchemaBytes = 1 << 20
	MaxSchemas     = 10_000
)

// SchemasConfig configures [Schemas].
type SchemasConfig struct {
	// AllowUnknown lets events pass for whose type and version there is no schema.
	// Default: they are a permanent error, [ReasonSchemaUnknown].
	AllowUnknown bool
	// Codec of the messages, where neither [Consume] nor [ConsumeStoreless] has decoded
	// them. Default: [eventing.EnvelopeCodec].
	Codec eventing.Codec
}

// Schemas has the JSON Schemas that payloads of events have to satisfy, by event type and schema
// version. It is safe for concurrent use.
type Schemas struct {
	cfg SchemasConfig

	mu      sync.RWMutex
	schemas map[schemaKey]*jsonschema.Schema
}

type schemaKey struct {
	eventType string
	version   int
}

func (k schemaKey) String() string { return fmt.Sprintf("%s version %d", k.eventType, k.version) }

// NewSchemas returns one without schemas.
func NewSchemas(cfg SchemasConfig) *Schemas {
	if cfg.Codec == nil {
		cfg.Codec = eventing.EnvelopeCodec{}
	}
	return &Schemas{cfg: cfg, schemas: map[schemaKey]*jsonschema.Schema{}}
}

// Add compiles the schema of an event type's version: JSON of at most [MaxSchemaBytes], of
// any draft from 4 to 2020-12, which is the default. Formats are checked. References have
// to stay within the schema: nothing is ever loaded, neither from the network nor
// from files.
func (s *Schemas) Add(eventType string, version int, schema []byte) error {
	key := schemaKey{eventType, version}
	bad := func(err error) error { return fmt.Errorf("schema of %s: %w", key, err) }
	if eventType == "" || version < 1 {
		return bad(errors.New("an event type and a version from 1 are needed"))
	}
	if len(schema) > MaxSchemaBytes {
		return bad(fmt.Errorf("it has %d bytes, more than %d", len(schema), MaxSchemaBytes))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return bad(err)
	}
	const address = "waybill:///schema" // hierarchical, so that a relative reference is another address
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // no scheme: it refuses all
	c.AssertFormat()
	if err := c.AddResource(address, doc); err != nil {
		return bad(err)
	}
	compiled, err := c.Compile(address)
	if err != nil {
		return bad(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.schemas[key] != nil:
		return bad(errors.New("there is one already"))
	case len(s.schemas) == MaxSchemas:
		return bad(fmt.Errorf("there are %d schemas already, the most that there may be", MaxSchemas))
	}
	s.schemas[key] = compiled
	return nil
}

// Middleware goes inside [Consume], [ConsumeStoreless] or [DeadLetter], which conclude
// its errors, and first after them, so that nothing else sees an event that is not what it
// should be. Its errors are permanent: [ReasonSchemaViolation], whose message names the places at
// fault as JSON pointers with the schema's keyword, ten at most, and no values;
// [ReasonSchemaUnknown]; and for what is no envelope [eventing.ReasonEnvelopeMalformed].
func (s *Schemas) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		e, ok := eventing.EnvelopeFromContext(m.Context())
		if !ok {
			var err error
			if e, err = s.cfg.Codec.Unmarshal(m); err != nil {
				return nil, eventing.PermanentWithReason(eventing.ReasonEnvelopeMalformed, err)
			}
		}
		if err := s.Check(e); err != nil {
			return nil, err
		}
		return h(m)
	}
}

// Check validates the payload of an event; its errors are those of Middleware.
func (s *Schemas) Check(e eventing.Envelope) error {
	key := schemaKey{e.Type, e.SchemaVersion}
	s.mu.RLock()
	schema := s.schemas[key]
	s.mu.RUnlock()
	switch {
	case schema == nil && s.cfg.AllowUnknown:
		return nil
	case schema == nil:
		return eventing.PermanentWithReason(ReasonSchemaUnknown, fmt.Errorf("there is no schema of %s: add it, or allow unknown ones", key))
	}
	violation := func(what string) error {
		return eventing.PermanentWithReason(ReasonSchemaViolation, fmt.Errorf("the payload does not satisfy the schema of %s: %s", key, what))
	}
	payload, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Payload))
	if err != nil {
		return violation("it is no JSON")
	}
	if !bounded(payload) {
		return violation("a number has more digits or a larger exponent than can be checked")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(payload); errors.As(err, &invalid) {
		return violation(strings.Join(faults(invalid), ", "))
	} else if err != nil {
		return violation("it cannot be checked")
	}
	return nil
}

// Bounds of a number: comparing them exactly, as the validator does, takes time and memory that grow with
// the exponent, and fails from a million on.
const maxDigits, maxExponent = 1000, 1000

// bounded reports whether all numbers of a decoded payload are within their bounds.
func bounded(v any) bool {
	switch v := v.(type) {
	case json.Number:
		mantissa, exponent, found := strings.Cut(strings.ToLower(string(v)), "e")
		if !found {
			return len(mantissa) <= maxDigits
		}
		n, err := strconv.Atoi(exponent)
		return err == nil && len(mantissa) <= maxDigits && n <= maxExponent && n >= -maxExponent
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !bounded(v) })
	case map[string]any:
		for _, v := range v {
			if !bounded(v) {
				return false
			}
		}
	}
	return true
}

// Bounds of a violation's message, and of what is collected for it.
const maxFaults, maxPointerBytes, maxDistinctFaults = 10, 100, 1000

// faults names the places at fault. Keywords, not the library's texts, which have values in them.
func faults(e *jsonschema.ValidationError) []string {
	distinct := map[string]bool{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			if len(distinct) > maxDistinctFaults {
				return
			}
			walk(cause)
		}
		if len(e.Causes) > 0 {
			return
		}
		fault := pointer(e.InstanceLocation)
		if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
			fault += " (" + path[0] + ")"
		}
		distinct[fault] = true
	}
	walk(e)
	list := slices.Sorted(maps.Keys(distinct)) // the validator's order is that of a map
	switch more := len(list) - maxFaults; {
	case len(list) > maxDistinctFaults:
		list = append(list[:maxFaults], "and many more")
	case more > 0:
		list = append(list[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return list
}

// pointer is an RFC 6901 JSON pointer, cut if it is long; of the whole payload, "payload".
func pointer(tokens []string) string {
	if len(tokens) == 0 {
		return "payload"
	}
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(t))
		if b.Len() > maxPointerBytes {
			return strings.ToValidUTF8(b.String()[:maxPointerBytes], "") + "…"
		}
	}
	return b.String()
}
