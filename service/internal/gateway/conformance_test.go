package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// The collections that the specification names.
const (
	ledgerCollection   = "processed_events"
	shipmentCollection = "active_shipments"
	deadCollection     = "dead_letter_events"
)

// conforming is a gateway on what the specification names, MongoDB and Redis, with its collections and queues.
type conforming struct {
	*site
	storeURL, brokerURL string
	proxy               *testkit.Proxy // between the gateway and its store
	db                  *mongo.Database
	redis               *redis.Client
	watch               *watch
}

func newConforming(t *testing.T) *conforming {
	t.Helper()
	c := &conforming{site: &site{T: t}, storeURL: testserver.MongoURL(t), brokerURL: testserver.RedisURL(t), watch: &watch{of: map[string]*watched{}}}
	c.db = openMongoView(t, c.storeURL).(mongoView).db
	c.watch.ledger = c.db.Collection(ledgerCollection)
	c.keepQueues()
	c.proxy = testkit.StartProxy(t, c.storeURL)
	cfg := testConfig(c.proxy.URL(), siteSecret)
	cfg.BrokerURL = c.brokerURL
	cfg.wrap = func(r replaceable) replaceable {
		r.events = witness{r.events.(mongoEvents), c.watch}
		return r
	}
	c.url = serve(t, cfg)
	c.sender = newSender(c.url, siteSecret, 4)
	t.Cleanup(c.sender.close)
	return c
}

// line checks a line of the specification, as a subtest.
func (c *conforming) line(name string, check func(c *conforming)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		one, s := *c, *c.site
		s.T, one.site = t, &s
		check(&one)
	})
}

// document returns the one document of a collection with a field like that, as the server has it.
func (c *conforming) document(collection, field, value string) bson.Raw {
	c.Helper()
	doc, err := c.db.Collection(collection).FindOne(c.Context(), bson.D{{Key: field, Value: value}}).Raw()
	if err != nil {
		c.Fatalf("the document of %s whose %s is %s: %v", collection, field, value, err)
	}
	return doc
}

// ledger returns the entry of courier-x's event.
func (c *conforming) ledger(id string) bson.Raw { return c.document(ledgerCollection, "eventId", id) }

// letter waits for the dead letter of courier-x's event to have a status, and returns it.
func (c *conforming) letter(id, reviewStatus string) (doc bson.Raw) {
	c.Helper()
	testkit.Eventually(c, patient, func() (err error) {
		doc, err = c.db.Collection(deadCollection).FindOne(c.Context(), bson.D{{Key: "eventId", Value: id}, {Key: "reviewStatus", Value: reviewStatus}}).Raw()
		return err
	})
	return doc
}

// tell sends an event of courier-x and waits for what becomes of it.
func (c *conforming) tell(id string, minutes int, payload string, want courier.Status) (traceID string) {
	c.Helper()
	traceID = c.send(says("courier-x", id, minutes, payload))
	c.becomes(id, "courier-x", want)
	return traceID
}

// act does what an operator does to the dead letter of an event.
func (c *conforming) act(id, act, body string) (status int) {
	c.Helper()
	return c.call(http.MethodPost, "/v1/dead-letters/"+envelopeOf(id)+"/"+worker.Consumer+"/"+act, body, nil)
}

// envelopeOf returns the id of the envelope of courier-x's event.
func envelopeOf(id string) string { return courier.EventID("courier-x", "courier-x:"+id) }

// mongoEvents is the library's store on MongoDB.
type mongoEvents interface {
	store.Library
	eventing.OutboxStore[*mongostore.Tx]
}

// watch notes what the ledger says of an event at each step of the worker, and has runs fail.
type watch struct {
	ledger *mongo.Collection

	mu sync.Mutex
	of map[string]*watched // by the envelope's id
}

type watched struct {
	overdue  int    // so many of its runs begin when their time is over; negative: all
	failed   func() // runs after the first failure
	statuses []string
	delays   []time.Duration
}

func (w *watch) event(envelopeID string) *watched {
	if w.of[envelopeID] == nil {
		w.of[envelopeID] = &watched{}
	}
	return w.of[envelopeID]
}

// expect says how the runs of an event go.
func (w *watch) expect(id string, overdue int, failed func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.event(envelopeOf(id))
	e.overdue, e.failed = overdue, failed
}

// look notes the status, unless it is the last one noted.
func (w *watch) look(ctx context.Context, envelopeID string) {
	var entry struct{ Status string }
	err := w.ledger.FindOne(ctx, bson.D{{Key: "envelopeId", Value: envelopeID}}).Decode(&entry)
	if err != nil {
		entry.Status = err.Error()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.event(envelopeID)
	if n := len(e.statuses); n == 0 || e.statuses[n-1] != entry.Status {
		e.statuses = append(e.statuses, entry.Status)
	}
}

// seen returns what was noted of an event.
func (w *watch) seen(id string) (statuses []string, delays []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.event(envelopeOf(id))
	return slices.Clone(e.statuses), slices.Clone(e.delays)
}

// within returns the context of a run: one whose time is over, if that is how it is to go.
func (w *watch) within(ctx context.Context, envelopeID string) (context.Context, context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.event(envelopeID)
	if e.overdue == 0 {
		return context.WithCancel(ctx)
	}
	e.overdue--
	return context.WithDeadline(ctx, time.Now().Add(-time.Second))
}

// witness is the worker's store, watched.
type witness struct {
	mongoEvents
	*watch
}

func (w witness) Succeed(ctx context.Context, s eventing.Success) error {
	w.look(ctx, s.EventID)
	effect := s.Effect
	s.Effect = func(runs context.Context, tx any) error {
		runs, cancel := w.within(runs, s.EventID)
		defer cancel()
		err := effect(runs, tx)
		w.look(ctx, s.EventID)
		return err
	}
	err := w.mongoEvents.Succeed(ctx, s)
	w.look(ctx, s.EventID)
	return err
}

func (w witness) Fail(ctx context.Context, f eventing.Failure) error {
	err := w.mongoEvents.Fail(ctx, f)
	w.look(ctx, f.EventID)
	w.mu.Lock()
	e := w.event(f.EventID)
	if f.State == eventing.StateRetrying {
		e.delays = append(e.delays, f.DueAt.Sub(f.Now))
	}
	failed := e.failed
	e.failed = nil
	w.mu.Unlock()
	if failed != nil {
		failed()
	}
	return err
}

// spoil has a shipment's document be none that the gateway can read, and returns what mends that.
func (c *conforming) spoil(shipmentID string) (mend func()) {
	c.Helper()
	shipments := c.db.Collection(shipmentCollection)
	if _, err := shipments.InsertOne(c.Context(), bson.D{{Key: "_id", Value: shipmentID}, {Key: "shipmentId", Value: shipmentID}, {Key: "lastEventAt", Value: "yesterday"}}); err != nil {
		c.Fatal(err)
	}
	return func() {
		_, _ = shipments.DeleteOne(context.WithoutCancel(c.Context()), bson.D{{Key: "_id", Value: shipmentID}})
	}
}

// exhaust sends an event whose attempts all run out of time, and waits for its dead letter.
func (c *conforming) exhaust(id, payload string) (traceID string, letter bson.Raw) {
	c.Helper()
	c.watch.expect(id, -1, nil)
	traceID = c.tell(id, 10, payload, courier.StatusDeadLettered)
	return traceID, c.letter(id, "pending")
}

// keepQueues has Redis keep all messages of the queues, for a group that reads none.
func (c *conforming) keepQueues() {
	c.Helper()
	options, err := redis.ParseURL(c.brokerURL)
	if err != nil {
		c.Fatal(err)
	}
	c.redis = redis.NewClient(options)
	c.Cleanup(func() { _ = c.redis.Close() })
	for _, queue := range []string{worker.Queue, deadLetterQueue} {
		if err := c.redis.XGroupCreateMkStream(c.Context(), queue, "stranger", "0").Err(); err != nil {
			c.Fatal(err)
		}
	}
}

// job is a message of a queue.
type job struct {
	values  map[string]any // of its entry in the stream
	payload []byte
	fields  map[string]any // of the payload
}

// message waits for the first message of a queue about an event.
func (c *conforming) message(queue, id string) (found job) {
	c.Helper()
	testkit.Eventually(c, patient, func() error {
		entries, err := c.redis.XRange(c.Context(), queue, "-", "+").Result()
		for _, e := range entries {
			j := job{values: e.Values, payload: []byte(fmt.Sprint(e.Values["payload"]))}
			if json.Unmarshal(j.payload, &j.fields) == nil && j.fields["eventId"] == id {
				found = j
				return nil
			}
		}
		return errors.Join(err, errNotYet)
	})
	return found
}

// field is one that the specification has a document have.
type field struct {
	name  string
	types []bson.Type
	// wrong says what is wrong with the value; nil: any is right.
	wrong func(bson.RawValue) error
}

var (
	isText   = []bson.Type{bson.TypeString}
	isTime   = []bson.Type{bson.TypeDateTime}
	isNumber = []bson.Type{bson.TypeInt32, bson.TypeInt64}
	isObject = []bson.Type{bson.TypeEmbeddedDocument}
	isArray  = []bson.Type{bson.TypeArray}
	nullable = []bson.Type{bson.TypeString, bson.TypeNull}
)

func is(want any) func(bson.RawValue) error {
	return func(v bson.RawValue) error {
		if got := v.String(); got != fmt.Sprint(want) {
			return fmt.Errorf("is %s, want %v", got, want)
		}
		return nil
	}
}

// has checks that a document has a field.
func (c *conforming) has(doc bson.Raw, f field) {
	c.Helper()
	v, err := doc.LookupErr(f.name)
	if err != nil {
		c.Errorf("%s is missing: %v", f.name, doc)
		return
	}
	if !slices.Contains(f.types, v.Type) {
		c.Errorf("%s is of the type %s, want one of %v", f.name, v.Type, f.types)
	}
	if f.wrong == nil {
		return
	}
	if err := f.wrong(v); err != nil {
		c.Errorf("%s %v", f.name, err)
	}
}

// expiresIn checks that something expires so many days after a time.
func (c *conforming) expiresIn(doc bson.Raw, days int, after string) {
	c.Helper()
	got := doc.Lookup("expiresAt").Time().Sub(doc.Lookup(after).Time())
	if want := time.Duration(days) * day; (got - want).Abs() > time.Hour {
		c.Errorf("it expires %v after %s, want %v", got, after, want)
	}
}

// answer posts an event and returns the status of the answer.
func (c *conforming) answer(body string) int {
	c.Helper()
	timestamp, signature := courier.Sign([]byte(siteSecret), []byte(body), time.Now())
	return c.postSigned([]byte(body), timestamp, signature)
}

// postSigned posts bytes with a signature that may be wrong.
func (c *conforming) postSigned(body []byte, timestamp, signature string) (status int) {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodPost, c.url+"/v1/events/courier", bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(courier.HeaderTimestamp, timestamp)
	r.Header.Set(courier.HeaderSignature, signature)
	response, err := c.sender.http.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// eachLetter looks at all dead letters.
func (c *conforming) eachLetter(look func(doc bson.Raw)) {
	c.Helper()
	cursor, err := c.db.Collection(deadCollection).Find(c.Context(), bson.D{})
	if err != nil {
		c.Fatal(err)
	}
	var docs []bson.Raw
	if err := cursor.All(c.Context(), &docs); err != nil || len(docs) == 0 {
		c.Fatalf("%d dead letters, %v", len(docs), err)
	}
	for _, doc := range docs {
		look(doc)
	}
}

// diesAgain waits for a dead letter to be open with so many attempts.
func (c *conforming) diesAgain(id string, attempts int32) {
	c.Helper()
	testkit.Eventually(c, patient, func() error {
		if doc := c.letter(id, "pending"); doc.Lookup("attemptCount").AsInt64() != int64(attempts) {
			return fmt.Errorf("%s: %w", doc, errNotYet)
		}
		return nil
	})
}

var errWrong = errors.New("is wrong")
