package gateway

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// The architecture of the specification, line by line, as it is seen from outside of a gateway that runs.
func TestConformanceArchitecture(t *testing.T) {
	t.Parallel()
	c := newConforming(t)
	for _, line := range []struct {
		name  string
		check func(c *conforming)
	}{
		{"gateway-api/returns 202", (*conforming).accepts},
		{"gateway-api/returns 400", (*conforming).refusesPayload},
		{"gateway-api/returns 401", (*conforming).verifies},
		{"gateway-api/returns 503", (*conforming).isUnavailable},
		{"data flow/1 client sends signed POST", (*conforming).accepts},
		{"data flow/2 signature over raw bytes", (*conforming).signedRaw},
		{"data flow/3 schema validator", (*conforming).identified},
		{"data flow/4 publishes to courier-events-main, 5 returns 202 with traceId", (*conforming).publishes},
		{"data flow/6 worker consumes", (*conforming).consumes},
		{"data flow/7 checks idempotency state", (*conforming).checksIdempotency},
		{"data flow/8 upserts active_shipments", (*conforming).upserts},
		{"data flow/9 marks processed", (*conforming).marksProcessed},
		{"data flow/10 marks failed and retries with backoff", (*conforming).retries},
		{"data flow/11 dead letter of a permanent failure", (*conforming).diesAtOnce},
		{"data flow/11 dead letter of an exhausted failure", (*conforming).diesExhausted},
	} {
		c.line(line.name, line.check)
	}
	for _, i := range keyIndexes {
		c.line("mongo collections/"+i.collection+"/"+i.name, func(c *conforming) { c.hasIndex(i) })
	}
}

func (c *conforming) accepts() {
	if trace := c.send(says("courier-x", "evt_1", 10, `{"shipmentId":"shp_1"}`)); trace == "" {
		c.Error("no trace id")
	}
}

func (c *conforming) refusesPayload() {
	for _, body := range []string{`{`, `[]`, `{}`, strings.Replace(says("courier-x", "evt_x", 10, `{"shipmentId":"shp_1"}`), "2026-02-26", "yesterday", 1)} {
		if got := c.answer(body); got != 400 {
			c.Errorf("%s: %d", body, got)
		}
	}
}

func (c *conforming) isUnavailable() {
	thaw := c.proxy.Freeze()
	defer thaw()
	body := says("courier-x", "evt_unavailable", 10, `{"shipmentId":"shp_1"}`)
	if got := c.answer(body); got != 503 {
		c.Errorf("while the store does not answer: %d", got)
	}
	thaw()
	testkit.Eventually(c, patient, func() error {
		if got := c.answer(body); got != 202 {
			return fmt.Errorf("after it does again: %d", got)
		}
		return nil
	})
}

// signedRaw tells that bytes count, and before what they mean.
func (c *conforming) signedRaw() {
	body := []byte(says("courier-x", "evt_raw", 10, `{"shipmentId":"shp_1"}`))
	timestamp, signature := courier.Sign([]byte(siteSecret), body, time.Now())
	if got := c.postSigned(bytes.ReplaceAll(body, []byte(","), []byte(", ")), timestamp, signature); got != 401 {
		c.Errorf("the same JSON in other bytes: %d", got)
	}
	if got := c.postSigned([]byte("{"), timestamp, signature); got != 401 {
		c.Errorf("no JSON, not signed: %d", got)
	}
	if got := c.postSigned(body, timestamp, signature); got != 202 {
		c.Errorf("the bytes that were signed: %d", got)
	}
}

func (c *conforming) publishes() {
	trace := c.send(says("courier-x", "evt_4", 10, `{"shipmentId":"shp_4"}`))
	if got := c.message(worker.Queue, "evt_4").fields["traceId"]; got != trace {
		c.Errorf("the queue has the trace id %v, the answer %s", got, trace)
	}
}

func (c *conforming) consumes() {
	c.tell("evt_6", 10, `{"shipmentId":"shp_6"}`, courier.StatusProcessed)
	c.has(c.ledger("evt_6"), field{"attemptCount", isNumber, is(`{"$numberInt":"1"}`)})
	c.document("consumer_inbox", "eventId", envelopeOf("evt_6"))
}

// checksIdempotency brings a job again that is done: while the inbox knows it, and when only the ledger does.
func (c *conforming) checksIdempotency() {
	c.tell("evt_7", 10, `{"shipmentId":"shp_7","status":"picked_up"}`, courier.StatusProcessed)
	job, before := c.message(worker.Queue, "evt_7"), c.document(shipmentCollection, "shipmentId", "shp_7")
	publish := func() {
		if err := c.redis.XAdd(c.Context(), &redis.XAddArgs{Stream: worker.Queue, Values: job.values}).Err(); err != nil {
			c.Fatal(err)
		}
	}
	publish()
	c.tell("evt_after", 10, `{"shipmentId":"shp_idle"}`, courier.StatusProcessed)
	if _, err := (mongoView{c.db}).forget(c.Context(), "courier-x:evt_7"); err != nil {
		c.Fatal(err)
	}
	publish()
	testkit.Eventually(c, patient, func() error { // the worker has it
		_, err := c.db.Collection("consumer_inbox").FindOne(c.Context(), bson.D{{Key: "eventId", Value: envelopeOf("evt_7")}, {Key: "processedAt", Value: bson.D{{Key: "$exists", Value: true}}}}).Raw()
		return err
	})
	if after := c.document(shipmentCollection, "shipmentId", "shp_7"); after.String() != before.String() {
		c.Errorf("it was applied again: %s, was %s", after, before)
	}
	if n, err := c.db.Collection("shipment_events").CountDocuments(c.Context(), bson.D{{Key: "idempotencyKey", Value: "courier-x:evt_7"}}); n != 1 || err != nil {
		c.Errorf("it was applied %d times, %v", n, err)
	}
}

func (c *conforming) upserts() {
	c.tell("evt_8", 10, `{"shipmentId":"shp_8","orderId":"ord_8","status":"picked_up"}`, courier.StatusProcessed)
	first := c.document(shipmentCollection, "shipmentId", "shp_8")
	c.tell("evt_8b", 20, `{"shipmentId":"shp_8","status":"delivered"}`, courier.StatusProcessed)
	second := c.document(shipmentCollection, "shipmentId", "shp_8")
	c.has(second, field{"currentState", isText, is(`"delivered"`)})
	c.has(second, field{"orderId", isText, is(`"ord_8"`)})
	if !first.Lookup("createdAt").Equal(second.Lookup("createdAt")) || !second.Lookup("updatedAt").Time().After(first.Lookup("updatedAt").Time()) {
		c.Errorf("%s after %s", second, first)
	}
}

func (c *conforming) marksProcessed() {
	c.tell("evt_9", 10, `{"shipmentId":"shp_9"}`, courier.StatusProcessed)
	c.saw("evt_9", "received", "processing", "processed")
}

// saw checks which states the ledger has had of an event, in their order.
func (c *conforming) saw(id string, want ...string) (delays []time.Duration) {
	c.Helper()
	testkit.Eventually(c, soon, func() error {
		var got []string
		if got, delays = c.watch.seen(id); !slices.Equal(got, want) {
			return fmt.Errorf("%s was %v, want %v", id, got, want)
		}
		return nil
	})
	return delays
}

func (c *conforming) retries() {
	c.watch.expect("evt_10", 0, c.spoil("shp_10"))
	c.tell("evt_10", 10, `{"shipmentId":"shp_10","status":"delivered"}`, courier.StatusProcessed)
	delays := c.saw("evt_10", "received", "processing", "failed", "processing", "processed")
	if len(delays) != 1 || delays[0] < 20*time.Millisecond || delays[0] > 24*time.Millisecond {
		c.Errorf("tried again after %v, want 20 ms and up to a fifth more", delays)
	}
	c.has(c.ledger("evt_10"), field{"attemptCount", isNumber, is(`{"$numberInt":"2"}`)})
}

func (c *conforming) diesAtOnce() {
	c.tell("evt_11", 10, `{"shipmentId":"shp_11","status":"!!"}`, courier.StatusDeadLettered)
	c.isDead("evt_11", "INVALID_STATUS", 1)
}

func (c *conforming) diesExhausted() {
	c.exhaust("evt_11b", `{"shipmentId":"shp_11"}`)
	c.saw("evt_11b", "received", "failed", "dead_lettered")
	c.isDead("evt_11b", "DOWNSTREAM_TIMEOUT_EXHAUSTED", 5)
}

// isDead looks where the specification has what has died: ledger, dead letters and queue.
func (c *conforming) isDead(id, reason string, attempts int) {
	c.Helper()
	c.has(c.ledger(id), field{"status", isText, is(`"dead_lettered"`)})
	doc := c.letter(id, "pending")
	c.has(doc, field{"terminalReasonCode", isText, is(strconv.Quote(reason))})
	if got := doc.Lookup("attemptCount").AsInt64(); got != int64(attempts) {
		c.Errorf("after %d attempts, want %d", got, attempts)
	}
	told := c.message(deadLetterQueue, id).fields
	if told["terminalReasonCode"] != reason || told["attemptCount"] != float64(attempts) {
		c.Errorf("the queue has %v", told)
	}
}

// layers are the packages of the specification's layers.
var layers = map[string]string{
	"httpapi": "API controllers", "intake": "API services", "reads": "API services", "worker": "worker processors",
	"ledger": "repositories", "shipments": "repositories", "mongorepo": "repositories", "store": "repositories",
}

// Dependencies flow inward, and API and worker do not know each other, nor each other's by way of others. The interfaces that
// repositories implement live with who uses them: what intake hands over is the only thing of the API's that they know.
func TestConformanceLayers(t *testing.T) {
	t.Parallel()
	imports := importsOf(t)
	for _, rule := range []struct {
		name, from string
		never      []string
		through    []string // packages where it ends
	}{
		{"API controllers do not know the worker", "API controllers", []string{"worker processors"}, nil},
		{"API controllers do not know repositories", "API controllers", []string{"repositories"}, nil},
		{"API services do not know the worker", "API services", []string{"worker processors"}, nil},
		{"API services do not know repositories", "API services", []string{"repositories"}, nil},
		{"the worker does not know the API", "worker processors", []string{"API controllers", "API services"}, nil},
		{"the worker does not know repositories", "worker processors", []string{"repositories"}, nil},
		{"repositories do not know the worker", "repositories", []string{"worker processors"}, nil},
		{"repositories do not know the API's controllers", "repositories", []string{"API controllers"}, []string{"intake"}},
	} {
		t.Run(rule.name, func(t *testing.T) {
			for name, layer := range layers {
				if layer != rule.from {
					continue
				}
				for known, path := range reached(imports, name, rule.through) {
					if slices.Contains(rule.never, layers[known]) {
						t.Errorf("%s imports %s", name, strings.Join(path, ", which imports "))
					}
				}
			}
		})
	}
}

// importsOf returns what each internal package of the service imports of the others.
func importsOf(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(filepath.Dir(file))
		imports[name] = append([]string{}, imports[name]...)
		for _, i := range parsed.Imports {
			if of, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "github.com/waybill-go/waybill/service/internal/"); ok {
				imports[name] = append(imports[name], of)
			}
		}
	}
	for name := range layers {
		if imports[name] == nil {
			t.Errorf("there is no package %s: is it still called so?", name)
		}
	}
	return imports
}

// reached returns the packages that one imports, also by way of others but those given, each with the way to it.
func reached(imports map[string][]string, from string, but []string) map[string][]string {
	paths := map[string][]string{}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		for _, next := range imports[name] {
			if paths[next] != nil {
				continue
			}
			paths[next] = append(slices.Clone(path), next)
			if !slices.Contains(but, next) {
				visit(next, paths[next])
			}
		}
	}
	visit(from, nil)
	return paths
}
