package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongoevent "go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// The data model of the specification, line by line, in the documents of a gateway that has run.
func TestConformanceDataModel(t *testing.T) {
	t.Parallel()
	c := newConforming(t)
	const payload = `{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery","van":{"no":9007199254740993}}`
	c.tell("evt_123", 10, payload, courier.StatusProcessed)
	_, letter := c.exhaust("evt_dead", payload)
	main := c.message(worker.Queue, "evt_123").fields

	for _, entity := range []struct {
		name   string
		doc    bson.Raw
		fields []field
	}{
		{"ProcessedEvent", c.ledger("evt_123"), processedEvent(is(`"processed"`), bson.TypeNull)},
		{"ProcessedEvent of one that has failed", c.ledger("evt_dead"), processedEvent(is(`"dead_lettered"`), bson.TypeString)},
		{"ActiveShipment", c.document(shipmentCollection, "shipmentId", "shp_456"), activeShipment},
		{"DeadLetterEvent", letter, deadLetterEvent},
	} {
		for _, f := range entity.fields {
			c.line(entity.name+"/"+f.name, func(c *conforming) { c.has(entity.doc, f) })
		}
	}
	for _, f := range courierEvent {
		c.line("CourierEvent/"+f.name, func(c *conforming) {
			if got := main[f.name]; fmt.Sprintf("%T", got) != f.kind || f.kind == "string" && got == "" {
				c.Errorf("%s is %v, want a %s", f.name, got, f.kind)
			}
			if at, _ := main[f.name].(string); f.time {
				if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
					c.Errorf("%s: %v", f.name, err)
				}
			}
		})
	}
	for _, rule := range dataModelRules {
		c.line(rule.name, rule.check)
	}
	c.line("ProcessedEvent/state transitions", (*conforming).transitions)
	for _, i := range keyIndexes {
		c.line("index/"+i.collection+" "+i.name, func(c *conforming) { c.hasIndex(i) })
	}
}

var courierEvent = []struct {
	name, kind string
	time       bool
}{
	{"eventId", "string", false},
	{"eventType", "string", false},
	{"occurredAt", "string", true},
	{"source", "string", false},
	{"idempotencyKey", "string", false},
	{"signatureMeta", "map[string]interface {}", false},
	{"payload", "map[string]interface {}", false},
	{"traceId", "string", false},
	{"receivedAt", "string", true},
}

func processedEvent(status func(bson.RawValue) error, lastError bson.Type) []field {
	failed := func(v bson.RawValue) error {
		if v.Type != lastError {
			return fmt.Errorf("%w: of the type %s, want %s", errWrong, v.Type, lastError)
		}
		return nil
	}
	return []field{
		{"idempotencyKey", isText, nil},
		{"eventId", isText, nil},
		{"eventType", isText, is(`"shipment.status.updated"`)},
		{"status", isText, status},
		{"attemptCount", isNumber, nil},
		{"lastErrorCode", nullable, failed},
		{"lastErrorMessage", nullable, failed},
		{"firstSeenAt", isTime, nil},
		{"updatedAt", isTime, nil},
		{"expiresAt", isTime, nil},
	}
}

var activeShipment = []field{
	{"shipmentId", isText, is(`"shp_456"`)},
	{"orderId", isText, is(`"ord_789"`)},
	{"currentState", isText, is(`"out_for_delivery"`)},
	{"lastEventId", isText, is(`"evt_123"`)},
	{"lastEventType", isText, is(`"shipment.status.updated"`)},
	{"lastEventAt", isTime, nil},
	{"metadata", isObject, nil},
	{"createdAt", isTime, nil},
	{"updatedAt", isTime, nil},
}

var deadLetterEvent = []field{
	{"eventId", isText, is(`"evt_dead"`)},
	{"idempotencyKey", isText, is(`"courier-x:evt_dead"`)},
	{"eventType", isText, is(`"shipment.status.updated"`)},
	{"terminalReasonCode", isText, is(`"DOWNSTREAM_TIMEOUT_EXHAUSTED"`)},
	{"terminalReasonMessage", isText, nil},
	{"attemptCount", isNumber, nil},
	{"attemptHistory", isArray, nil},
	{"payloadSnapshot", isObject, func(v bson.RawValue) error {
		if id := v.Document().Lookup("shipmentId"); id.String() != `"shp_456"` {
			return fmt.Errorf("%w: the shipment is %s", errWrong, id)
		}
		return is(`{"$numberLong":"9007199254740993"}`)(v.Document().Lookup("van", "no"))
	}},
	{"reviewStatus", isText, is(`"pending"`)},
	{"createdAt", isTime, nil},
	{"expiresAt", isTime, nil},
}

// dataModelRules are the rules beside the fields, by their lines.
var dataModelRules = []struct {
	name  string
	check func(c *conforming)
}{
	{"CourierEvent/signature must verify, within the allowed skew", (*conforming).verifies},
	{"CourierEvent/business identifiers must be present", (*conforming).identified},
	{"ProcessedEvent/no expiresAt before a final state", func(c *conforming) {
		c.watch.expect("evt_open", -1, nil)
		c.send(says("courier-x", "evt_open", 10, `{"shipmentId":"shp_open"}`))
		if v := c.ledger("evt_open").Lookup("expiresAt"); v.Type == bson.TypeDateTime && c.ledger("evt_open").Lookup("status").StringValue() != "dead_lettered" {
			c.Errorf("it expires at %v", v)
		}
		c.becomes("evt_open", "courier-x", courier.StatusDeadLettered)
	}},
	{"ProcessedEvent/30 days for terminal records", func(c *conforming) { c.expiresIn(c.ledger("evt_123"), 30, "updatedAt") }},
	// Longer than its dead letter, which is replayed from there: 90 days, and one for the sweeper.
	{"ProcessedEvent/dead-lettered records outlive their dead letter", func(c *conforming) { c.expiresIn(c.ledger("evt_dead"), 91, "updatedAt") }},
	{"ActiveShipment/updates are idempotent by idempotencyKey", (*conforming).idempotent},
	{"ActiveShipment/out-of-order events are flagged", (*conforming).late},
	{"DeadLetterEvent/90 days", func(c *conforming) { c.expiresIn(c.letter("evt_dead", "pending"), 90, "createdAt") }},
	{"DeadLetterEvent/attemptCount matches the highest attempt", (*conforming).counted},
	{"DeadLetterEvent/terminalReasonCode on every record", (*conforming).reasoned},
	{"Relationships/idempotencyKey maps 1:1", (*conforming).oneToOne},
	{"Relationships/lastEventId", func(c *conforming) {
		c.has(c.document(shipmentCollection, "lastEventId", "evt_123"), activeShipment[0])
	}},
	{"Relationships/a terminal failure is one dead letter", func(c *conforming) {
		if n, err := c.db.Collection(deadCollection).CountDocuments(c.Context(), bson.D{{Key: "idempotencyKey", Value: "courier-x:evt_dead"}}); n != 1 || err != nil {
			c.Errorf("%d dead letters, %v", n, err)
		}
	}},
}

func (c *conforming) verifies() {
	body := []byte(says("courier-x", "evt_unsigned", 10, `{"shipmentId":"shp_1"}`))
	for name, sign := range map[string]func() (string, string){
		"with another secret": func() (string, string) { return courier.Sign([]byte("another secret of somebody"), body, time.Now()) },
		"of other bytes":      func() (string, string) { return courier.Sign([]byte(siteSecret), append(body, ' '), time.Now()) },
		"of before the skew": func() (string, string) {
			return courier.Sign([]byte(siteSecret), body, time.Now().Add(-2*courier.DefaultMaxSkew))
		},
		"of after the skew": func() (string, string) {
			return courier.Sign([]byte(siteSecret), body, time.Now().Add(2*courier.DefaultMaxSkew))
		},
	} {
		timestamp, signature := sign()
		if got := c.postSigned(body, timestamp, signature); got != 401 {
			c.Errorf("a signature %s: %d", name, got)
		}
	}
}

func (c *conforming) identified() {
	for _, payload := range []string{`{}`, `{"shipmentId":null}`, `{"shipmentId":""}`, `{"orderId":"ord_1"}`, `null`, `[]`, `"text"`} {
		if got := c.answer(says("courier-x", "evt_anonymous", 10, payload)); got != 400 {
			c.Errorf("the payload %s: %d", payload, got)
		}
	}
}

func (c *conforming) idempotent() {
	const payload = `{"shipmentId":"shp_456","orderId":"ord_789","status":"out_for_delivery","van":{"no":9007199254740993}}`
	before := c.document(shipmentCollection, "shipmentId", "shp_456")
	c.send(says("courier-x", "evt_123", 10, payload))
	if got := c.answer(says("courier-x", "evt_123", 20, `{"shipmentId":"shp_456","status":"lost"}`)); got != 409 {
		c.Errorf("its key with another body: %d", got)
	}
	c.tell("evt_after", 5, `{"shipmentId":"shp_idle"}`, courier.StatusProcessed) // what came before it is done
	if after := c.document(shipmentCollection, "shipmentId", "shp_456"); after.String() != before.String() {
		c.Errorf("a repeat has changed %s to %s", before, after)
	}
	if n, err := c.db.Collection("shipment_events").CountDocuments(c.Context(), bson.D{{Key: "idempotencyKey", Value: "courier-x:evt_123"}}); n != 1 || err != nil {
		c.Errorf("it was applied %d times, %v", n, err)
	}
}

func (c *conforming) late() {
	c.tell("evt_new", 40, `{"shipmentId":"shp_order","status":"delivered"}`, courier.StatusProcessed)
	c.tell("evt_old", 30, `{"shipmentId":"shp_order","status":"picked_up"}`, courier.StatusProcessed)
	if got := c.ledger("evt_old").Lookup("outcome").StringValue(); got != "late" {
		c.Errorf("the outcome of the older event is %q", got)
	}
	doc := c.document(shipmentCollection, "shipmentId", "shp_order")
	c.has(doc, field{"currentState", isText, is(`"delivered"`)})
	c.has(doc, field{"lastEventId", isText, is(`"evt_new"`)})
}

// counted looks at all dead letters, also those that were replayed and died again.
func (c *conforming) counted() {
	if got := c.act("evt_dead", "replay", `{"note":"again"}`); got != 200 {
		c.Errorf("replay: %d", got)
	}
	c.diesAgain("evt_dead", 10)
	c.eachLetter(func(doc bson.Raw) {
		var d struct {
			AttemptCount   int
			AttemptHistory []struct{ Attempt int }
		}
		if err := bson.Unmarshal(doc, &d); err != nil {
			c.Fatal(err)
		}
		highest := 0
		for _, a := range d.AttemptHistory {
			highest = max(highest, a.Attempt)
		}
		if d.AttemptCount != highest || d.AttemptCount == 0 {
			c.Errorf("attemptCount is %d, the highest attempt %d", d.AttemptCount, highest)
		}
	})
}

func (c *conforming) reasoned() {
	c.tell("evt_permanent", 10, `{"shipmentId":"shp_5","status":"!!"}`, courier.StatusDeadLettered)
	c.letter("evt_permanent", "pending")
	c.eachLetter(func(doc bson.Raw) {
		if doc.Lookup("terminalReasonCode").StringValue() == "" {
			c.Errorf("a dead letter without a reason: %v", doc)
		}
	})
}

func (c *conforming) oneToOne() {
	cursor, err := c.db.Collection(ledgerCollection).Find(c.Context(), bson.D{})
	if err != nil {
		c.Fatal(err)
	}
	var docs []struct {
		ID  string `bson:"_id"`
		Key string `bson:"idempotencyKey"`
	}
	if err := cursor.All(c.Context(), &docs); err != nil || len(docs) == 0 {
		c.Fatalf("%d entries, %v", len(docs), err)
	}
	for _, d := range docs {
		if d.ID != d.Key {
			c.Errorf("the _id of %s is %s", d.Key, d.ID)
		}
	}
}

// transitions tries each pair of states on an entry that has the first.
func (c *conforming) transitions() {
	events := mongostore.New(c.db, mongostore.Config{})
	repo := mongorepo.New(c.db, events, mongorepo.Config{Retention: 30 * day, DeadLetterRetention: 91 * day})
	states := []courier.Status{courier.StatusReceived, courier.StatusProcessing, courier.StatusProcessed, courier.StatusFailed, courier.StatusDeadLettered}
	for _, from := range states {
		for _, to := range states {
			id := string(from) + "-" + string(to)
			if _, err := c.db.Collection(ledgerCollection).InsertOne(c.Context(), bson.D{
				{Key: "_id", Value: "courier-x:" + id}, {Key: "idempotencyKey", Value: "courier-x:" + id}, {Key: "envelopeId", Value: envelopeOf(id)},
				{Key: "eventId", Value: id}, {Key: "status", Value: string(from)}, {Key: "attemptCount", Value: 0},
			}); err != nil {
				c.Fatal(err)
			}
			now, want := c.ends(events, repo, id, to), from
			if ledger.Concludes(from, to) || to == courier.StatusProcessing && from != courier.StatusProcessed {
				want = to
			}
			if now != want {
				c.Errorf("from %s to %s it is %s, want %s", from, to, now, want)
			}
		}
	}
}

// ends runs an event as the worker would, until it has a status, and returns what the ledger says.
func (c *conforming) ends(events *mongostore.Store, repo *mongorepo.Repo, id string, to courier.Status) courier.Status {
	c.Helper()
	now, key := time.Now(), "courier-x:"+id
	envelope := eventing.Envelope{Header: eventing.Header{ID: envelopeOf(id), IdempotencyKey: key}}
	_, run, err := events.Arrive(c.Context(), eventing.Delivery{Consumer: "tester", EventID: envelope.ID, EventType: "test", Payload: []byte("{}")}, nil, now)
	if err != nil {
		c.Fatal(err)
	}
	process := func(ctx context.Context, tx any) error {
		a := courier.Arrival{EnvelopeID: envelope.ID, Attempt: 1, Event: courier.Event{EventID: id, IdempotencyKey: key, OccurredAt: now}, Payload: courier.Payload{ShipmentID: "shp_" + id}}
		_, err := repo.Process(ctx, tx.(*mongostore.Tx), []courier.Arrival{a}, now, repo.Until(now))
		if err == nil && to == courier.StatusProcessing {
			err = errStopsHere
		}
		return err
	}
	conclude := func(state eventing.State) func(ctx context.Context, tx any) error {
		return func(ctx context.Context, tx any) error {
			allowed, err := repo.Conclude(ctx, tx.(*mongostore.Tx), eventing.Conclusion{Consumer: "tester", Envelope: envelope, State: state, Attempts: 1, Err: errWrong}, now)
			if err == nil && !allowed {
				err = errStopsHere
			}
			return err
		}
	}
	switch to {
	case courier.StatusProcessing, courier.StatusProcessed:
		err = events.Succeed(c.Context(), eventing.Success{Run: run, Now: now, InboxUntil: now.Add(day), Effect: process})
	case courier.StatusFailed:
		err = events.Fail(c.Context(), eventing.Failure{Run: run, Now: now, State: eventing.StateRetrying, Attempts: 1, DueAt: now.Add(day), Finish: conclude(eventing.StateRetrying)})
	case courier.StatusDeadLettered:
		err = events.Fail(c.Context(), eventing.Failure{Run: run, Now: now, State: eventing.StateDead, Attempts: 1, DeadLetterUntil: now.Add(90 * day), Reason: "TEST", Finish: conclude(eventing.StateDead)})
	case courier.StatusReceived: // nothing leads there
	}
	if err != nil && !errors.Is(err, errStopsHere) {
		c.Fatalf("%s: %v", id, err)
	}
	return courier.Status(c.ledger(id).Lookup("status").StringValue())
}

var errStopsHere = errors.New("it stops here")

// keyIndex is an index of the specification.
type keyIndex struct {
	collection, name string
	keys             []string
	unique, expires  bool
	only             string // documents that are like that, in extended JSON; empty: all
}

var keyIndexes = []keyIndex{
	{ledgerCollection, "unique idempotencyKey", []string{"idempotencyKey"}, true, false, ""},
	{ledgerCollection, "(status, updatedAt)", []string{"status", "updatedAt"}, false, false, ""},
	{ledgerCollection, "TTL expiresAt", []string{"expiresAt"}, false, true, ""},
	{shipmentCollection, "unique shipmentId", []string{"shipmentId"}, true, false, ""},
	{shipmentCollection, "orderId", []string{"orderId"}, false, false, ""},
	{shipmentCollection, "(currentState, updatedAt)", []string{"currentState", "updatedAt"}, false, false, ""},
	{deadCollection, "(reviewStatus, createdAt)", []string{"reviewStatus", "createdAt"}, false, false, ""},
	{deadCollection, "createdAt", []string{"createdAt"}, false, false, ""},
	{deadCollection, "TTL expiresAt", []string{"expiresAt"}, false, true, `{"reviewStatus": "closed"}`},
}

// hasIndex looks at the server; and at what it was asked for, if that is a kind of index that the
// server of the tests does not have.
func (c *conforming) hasIndex(i keyIndex) {
	if i.expires {
		for _, made := range c.asked(i.collection) {
			if slices.Equal(made.keys, i.keys) && made.expires && made.only == i.only {
				return
			}
		}
		c.Errorf("nobody asked for it")
		return
	}
	specs, err := c.db.Collection(i.collection).Indexes().ListSpecifications(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for _, s := range specs {
		if slices.Equal(names(s.KeysDocument), i.keys) && (s.Unique != nil && *s.Unique) == i.unique {
			return
		}
	}
	c.Errorf("the server does not have it: %+v", specs)
}

func names(doc bson.Raw) (names []string) {
	elements, _ := doc.Elements()
	for _, e := range elements {
		names = append(names, e.Key())
	}
	return names
}

// asked returns the indexes that a migration asks the server for.
func (c *conforming) asked(collection string) (made []keyIndex) {
	var mu sync.Mutex
	client, err := mongo.Connect(options.Client().ApplyURI(c.storeURL).SetMonitor(&mongoevent.CommandMonitor{Started: func(_ context.Context, e *mongoevent.CommandStartedEvent) {
		if e.CommandName != "createIndexes" || e.Command.Lookup("createIndexes").StringValue() != collection {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		models, _ := e.Command.Lookup("indexes").Array().Values()
		for _, m := range models {
			_, err := m.Document().LookupErr("expireAfterSeconds")
			i := keyIndex{keys: names(m.Document().Lookup("key").Document()), expires: err == nil}
			if only, err := m.Document().LookupErr("partialFilterExpression"); err == nil {
				i.only = only.String()
			}
			made = append(made, i)
		}
	}}))
	if err != nil {
		c.Fatal(err)
	}
	err = mongorepo.Migrate(c.Context(), client.Database(c.db.Name()))
	if err := errors.Join(err, client.Disconnect(context.WithoutCancel(c.Context()))); err != nil {
		c.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return made
}
