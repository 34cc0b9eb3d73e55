package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// The queues of the specification, line by line.
func TestConformanceQueues(t *testing.T) {
	t.Parallel()
	c := newConforming(t)
	for _, line := range []struct {
		name  string
		check func(c *conforming)
	}{
		{"topology", (*conforming).topology},
		{"main queue payload", (*conforming).mainPayload},
		{"main queue payload/required fields", (*conforming).required},
		{"main queue payload/attempt starts at 1", (*conforming).attemptsStartAtOne},
		{"dlq payload", (*conforming).dlqPayload},
		{"retry policy/transient errors are retried to max attempts", (*conforming).diesExhausted},
		{"retry policy/permanent errors bypass retry", (*conforming).diesAtOnce},
		{"error classification/transient, timeout", func(c *conforming) { c.classified("evt_timeout", 1, nil, "TIMEOUT") }},
		{"error classification/unknown is transient", func(c *conforming) { c.classified("evt_unknown", 0, c.spoil("shp_evt_unknown"), "HANDLER_ERROR") }},
		{"error classification/permanent, validation", (*conforming).invalid},
		{"error classification/permanent, malformed", (*conforming).malformed},
		{"dlq procedures/persisted and published", (*conforming).diesAtOnce},
		{"dlq procedures/review states", (*conforming).reviewed},
		{"idempotency/check-before-process", (*conforming).checksIdempotency},
		{"idempotency/received, processing, processed", (*conforming).marksProcessed},
		{"idempotency/received, processing, failed, processing", (*conforming).retries},
		{"idempotency/failed, dead_lettered", func(c *conforming) {
			c.exhaust("evt_spent", `{"shipmentId":"shp_1"}`)
			c.saw("evt_spent", "received", "failed", "dead_lettered")
		}},
	} {
		c.line(line.name, line.check)
	}
	binary := buildGateway(t)
	c.line("dlq procedures/manual replay command", func(c *conforming) { c.replaysOldest(binary) })
	for _, setting := range specified {
		c.line("settings/"+setting.name, func(c *conforming) { c.configured(binary, setting.name, setting.value) })
	}
}

func (c *conforming) topology() {
	if worker.Queue != "courier-events-main" || deadLetterQueue != "courier-events-dlq" {
		c.Errorf("the queues are called %s and %s", worker.Queue, deadLetterQueue)
	}
	c.send(says("courier-x", "evt_first", 10, `{"shipmentId":"shp_1"}`))
	c.message(worker.Queue, "evt_first")
	if kind, err := c.redis.Type(c.Context(), worker.Queue).Result(); kind != "stream" || err != nil {
		c.Errorf("in Redis the main queue is a %s, %v", kind, err)
	}
}

// example is the event of the specification.
const example = `{"eventId":"evt_123","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x","idempotencyKey":"courier-x:evt_123",` +
	`"payload":{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery"}}`

// varying is what differs from run to run, by its field.
var varying = regexp.MustCompile(`"(traceId|timestamp|signature|receivedAt|deadLetteredAt|at|errorMessage|terminalReasonMessage)": ("(?:[^"\\]|\\.)*"|\d+)`)

// golden compares a message, its fields in their order, with a file.
func (c *conforming) golden(file string, payload []byte) {
	c.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, payload, "", "  "); err != nil {
		c.Fatal(err)
	}
	got := varying.ReplaceAllFunc(indented.Bytes(), func(match []byte) []byte {
		parts := varying.FindSubmatch(match)
		kind := "number"
		if parts[2][0] == '"' {
			kind = "text"
			if _, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(parts[2])); err == nil {
				kind = "time in UTC"
				if !bytes.HasSuffix(parts[2], []byte(`Z"`)) {
					kind = "time"
				}
			}
		}
		return fmt.Appendf(nil, "%q: %q", parts[1], "<"+kind+">")
	})
	want, err := os.ReadFile(filepath.Join("testdata", "conformance", file))
	if err != nil || !bytes.Equal(bytes.TrimSpace(want), bytes.TrimSpace(got)) {
		c.Errorf("%v; got %s, want %s", err, got, want)
	}
}

func (c *conforming) mainPayload() {
	c.send(example)
	c.golden("main.json", c.message(worker.Queue, "evt_123").payload)
}

func (c *conforming) required() {
	fields := c.message(worker.Queue, "evt_123").fields
	for _, name := range []string{"eventId", "idempotencyKey", "eventType", "traceId", "payload"} {
		if fields[name] == nil || fields[name] == "" {
			c.Errorf("%s is missing", name)
		}
	}
}

// attemptsStartAtOne: the queue has an event once, with attempt 1; the worker's further attempts are in its database.
func (c *conforming) attemptsStartAtOne() {
	c.classified("evt_attempts", 2, nil, "TIMEOUT")
	if got := c.message(worker.Queue, "evt_attempts").fields["attempt"]; got != 1.0 {
		c.Errorf("the queue has the attempt %v", got)
	}
	if got := c.ledger("evt_attempts").Lookup("attemptCount").AsInt64(); got != 3 {
		c.Errorf("the ledger has %d attempts, want 3", got)
	}
}

func (c *conforming) dlqPayload() {
	c.exhaust("evt_666", `{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery"}`)
	c.golden("dlq.json", c.message(deadLetterQueue, "evt_666").payload)
}

// classified sends an event whose first runs fail with an error that passes.
func (c *conforming) classified(id string, overdue int, mend func(), code string) {
	c.Helper()
	var during string
	c.watch.expect(id, overdue, func() {
		during = c.ledger(id).Lookup("lastErrorCode").StringValue()
		if mend != nil {
			mend()
		}
	})
	c.tell(id, 10, `{"shipmentId":"shp_`+id+`"}`, courier.StatusProcessed)
	statuses, _ := c.watch.seen(id)
	if during != code || !slices.Contains(statuses, "failed") {
		c.Errorf("it was %v, with the code %s, want %s", statuses, during, code)
	}
}

func (c *conforming) invalid() {
	c.tell("evt_invalid", 10, `{"shipmentId":"shp_1","status":"<b>"}`, courier.StatusDeadLettered)
	c.isDead("evt_invalid", "INVALID_STATUS", 1)
}

// malformed puts bytes into the queue that are no event.
func (c *conforming) malformed() {
	values := c.message(worker.Queue, "evt_first").values
	values["payload"] = "{"
	if err := c.redis.XAdd(c.Context(), &redis.XAddArgs{Stream: worker.Queue, Values: values}).Err(); err != nil {
		c.Fatal(err)
	}
	testkit.Eventually(c, patient, func() error {
		doc, err := c.db.Collection(deadCollection).FindOne(c.Context(), bson.D{{Key: "terminalReasonCode", Value: "ENVELOPE_MALFORMED"}}).Raw()
		if err == nil && doc.Lookup("attemptCount").AsInt64() > 1 {
			c.Errorf("it was tried again: %s", doc)
		}
		return err
	})
}

// reviewed takes a dead letter through all its states: while it is replayed, the first run fails.
func (c *conforming) reviewed() {
	c.exhaust("evt_review", `{"shipmentId":"shp_review","status":"delivered"}`)
	if got := c.act("evt_review", "review", `{"note":"looked at"}`); got != 200 {
		c.Fatalf("review: %d", got)
	}
	c.letter("evt_review", "reviewed")
	var replayed string
	c.watch.expect("evt_review", 1, func() {
		replayed = c.document(deadCollection, "eventId", "evt_review").Lookup("reviewStatus").StringValue()
	})
	if got := c.act("evt_review", "replay", `{"note":"the courier is back"}`); got != 200 {
		c.Fatalf("replay: %d", got)
	}
	c.letter("evt_review", "closed")
	if replayed != "replayed" {
		c.Errorf("while it was replayed, the dead letter was %s", replayed)
	}
	c.becomes("evt_review", "courier-x", courier.StatusProcessed)
	for act, body := range map[string]string{"review": `{}`, "replay": `{}`, "discard": `{"note":"no"}`} {
		if got := c.act("evt_review", act, body); got != 409 {
			c.Errorf("%s of what is closed: %d", act, got)
		}
	}
}

// gateway runs a command of the gateway, and returns what it prints.
func (c *conforming) gateway(binary string, env []string, args ...string) []byte {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patient)
	defer cancel()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "USER=anna", "STORE_URL=" + c.storeURL}, env...)
	out, err := command.Output()
	if err != nil {
		c.Fatalf("gateway %v: %v: %s", args, err, out)
	}
	return out
}

// replaysOldest has one of two dead letters replayed: the older.
func (c *conforming) replaysOldest(binary string) {
	for _, path := range c.letters("pending") { // of the lines before
		if got := c.call("POST", path+"/discard", `{"note":"not of this line"}`, nil); got != 200 {
			c.Fatalf("discard: %d", got)
		}
	}
	for _, id := range []string{"evt_older", "evt_newer"} {
		c.exhaust(id, `{"shipmentId":"shp_replay"}`)
	}
	c.watch.expect("evt_older", 0, nil)
	c.gateway(binary, nil, "dlq", "replay", "--limit", "1")
	c.letter("evt_older", "closed")
	c.letter("evt_newer", "pending")
	c.becomes("evt_older", "courier-x", courier.StatusProcessed)
}

// specified are the settings of the specification, with their defaults.
var specified = []struct{ name, value string }{
	{"RETRY_MAX_ATTEMPTS", "5"},
	{"RETRY_BACKOFF_BASE_MS", "1000"},
	{"RETRY_BACKOFF_MULTIPLIER", "2"},
	{"RETRY_JITTER_PERCENT", "20"},
	{"DLQ_TTL_DAYS", "90"},
	{"PROCESSED_TTL_DAYS", "30"},
}

// configured checks the default of a setting, and that the environment changes it.
func (c *conforming) configured(binary, name, value string) {
	for want, env := range map[string][]string{value: nil, "7": {name + "=7"}} {
		var config struct {
			Settings []struct{ Setting, Value, Origin string }
		}
		if err := json.Unmarshal(c.gateway(binary, env, "config", "--json"), &config); err != nil {
			c.Fatal(err)
		}
		found := false
		for _, s := range config.Settings {
			found = found || s.Setting == name && s.Value == want
		}
		if !found {
			c.Errorf("with %v it is not %s: %v", env, want, config.Settings)
		}
	}
}

// The delays of the specification's formula, with the settings that it has as defaults.
func TestConformanceRetryPolicy(t *testing.T) {
	t.Parallel()
	cfg := Config{RetryMaxAttempts: 5, RetryBackoffBaseMS: 1000, RetryBackoffMultiplier: 2, RetryJitterPercent: 20, ProcessedTTLDays: 30, DLQTTLDays: 90}
	policy := cfg.policy()
	if policy.Retry.MaxAttempts != 5 || policy.DeadLetterRetention != 90*day || policy.InboxRetention != 30*day {
		t.Errorf("the policy is %+v", policy)
	}
	for attempt, delays := range map[int]map[float64]time.Duration{
		1: {0: time.Second, 0.5: 1100 * time.Millisecond, 1: 1200 * time.Millisecond},
		2: {0: 2 * time.Second, 0.5: 2200 * time.Millisecond, 1: 2400 * time.Millisecond},
		3: {0: 4 * time.Second, 0.5: 4400 * time.Millisecond, 1: 4800 * time.Millisecond},
		4: {0: 8 * time.Second, 0.5: 8800 * time.Millisecond, 1: 9600 * time.Millisecond},
	} {
		for random, want := range delays {
			t.Run(fmt.Sprintf("attempt %d, random %v", attempt, random), func(t *testing.T) {
				if got := policy.Retry.Delay(attempt, random); got != want {
					t.Errorf("%v, want %v", got, want)
				}
			})
		}
	}
}
