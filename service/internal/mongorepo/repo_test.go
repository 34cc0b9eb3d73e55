package mongorepo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

func open(t *testing.T) *Repo {
	t.Helper()
	address := testserver.MongoURL(t)
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	db := client.Database(address[strings.LastIndex(address, "/")+1:])
	t.Cleanup(func() {
		if err := db.Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return New(db, mongostore.New(db, mongostore.Config{}), Config{Retention: 30 * 24 * time.Hour, DeadLetterRetention: 91 * 24 * time.Hour})
}

// accepted is an event as the intake has made it ready.
func accepted(n int, hash string) *intake.Entry {
	now := time.Now().UTC()
	e := courier.Event{
		EventID: fmt.Sprint("evt_", n), EventType: "parcel.scan", Source: "courier-x", IdempotencyKey: fmt.Sprint("courier-x:evt_", n),
		TraceID: fmt.Sprint("trace ", n, " ", hash), OccurredAt: now, ReceivedAt: now, Payload: []byte(`{"shipmentId":"shp_1","status":"delivered"}`),
	}
	envelope := eventing.Envelope{
		Header:  eventing.Header{ID: courier.EventID(e.Source, e.IdempotencyKey), Type: e.EventType, OccurredAt: now, IdempotencyKey: e.IdempotencyKey, AggregateType: "shipment", AggregateID: "shp_1"},
		Payload: e.Payload,
	}
	row, err := eventing.OutboxConfig{}.Row(context.Background(), envelope)
	if err != nil {
		panic(err)
	}
	return &intake.Entry{Event: e, ShipmentID: "shp_1", BodyHash: hash, Envelope: envelope, Row: row}
}

func (r *Repo) receiveAll(t *testing.T, entries ...*intake.Entry) []intake.Receipt {
	t.Helper()
	receipts, err := r.Receiver().Receive(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

// outbox returns the ids of its pending rows.
func (r *Repo) outbox(t *testing.T) (ids []string) {
	t.Helper()
	c, err := r.events.Claim(t.Context(), eventing.ClaimRequest{Now: time.Now(), Partitions: everyPartition()})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range c.Rows {
		ids = append(ids, row.ID)
	}
	return ids
}

func everyPartition() (all []eventing.PartitionClaim) {
	for p := range 32 {
		all = append(all, eventing.PartitionClaim{Partition: p, Limit: 100})
	}
	return all
}

// An event is entered once; whoever sends it again, with the same body or another, learns of the first.
func TestReceive(t *testing.T) {
	t.Parallel()
	r := open(t)
	first := r.receiveAll(t, accepted(1, "a"), accepted(2, "a"))
	if first[0].TraceID != "trace 1 a" || first[1].TraceID != "trace 2 a" {
		t.Errorf("the first receipts are %+v", first)
	}
	again := r.receiveAll(t, accepted(1, "b"), accepted(2, "a"), accepted(3, "a"))
	if again[0] != first[0] || again[1] != first[1] || again[2].TraceID != "trace 3 a" {
		t.Errorf("the receipts of repeats are %+v, want those of the first", again)
	}
	if rows := r.outbox(t); len(rows) != 3 {
		t.Errorf("the outbox has %v, want one row for each", rows)
	}
}

// Of bodies that race for a key one wins, for all; what the outbox has is the winner's.
func TestReceiveRaces(t *testing.T) {
	t.Parallel()
	r := open(t)
	const racers = 16
	receipts := make([]intake.Receipt, racers)
	var all sync.WaitGroup
	for i := range racers {
		all.Go(func() {
			got, err := r.Receiver().Receive(t.Context(), []*intake.Entry{accepted(1, fmt.Sprint("body ", i))})
			if err != nil {
				t.Error(err)
				return
			}
			receipts[i] = got[0]
		})
	}
	all.Wait()
	for _, got := range receipts {
		if got != receipts[0] {
			t.Errorf("receipts %+v and %+v, want one for all", got, receipts[0])
		}
	}
	if rows := r.outbox(t); len(rows) != 1 {
		t.Errorf("the outbox has %v, want one row", rows)
	}
}

// A request that dies between the ledger and the outbox leaves what its repeat completes, or else the sweeper.
func TestReceiveIsCompleted(t *testing.T) {
	t.Parallel()
	r := open(t)
	for n := range 2 {
		if _, err := r.enter(t.Context(), []*entry{newEntry(accepted(n, "a"))}); err != nil {
			t.Fatal(err)
		}
	}
	if rows := r.outbox(t); len(rows) != 0 {
		t.Fatalf("the outbox has %v", rows)
	}
	r.receiveAll(t, accepted(0, "a"))
	if rows := r.outbox(t); len(rows) != 1 {
		t.Errorf("after a repeat the outbox has %v", rows)
	}
	for _, after := range []time.Duration{0, 2 * leftAfter, 4 * leftAfter} {
		if _, err := r.Sweep(t.Context(), time.Now().Add(after), 10); err != nil {
			t.Fatal(err)
		}
		want := 2
		if after == 0 {
			want = 1 // its request may be at it
		}
		if rows := r.outbox(t); len(rows) != want {
			t.Errorf("after %v the outbox has %v, want %d rows", after, rows, want)
		}
	}
}

func arrival(e *intake.Entry, status string) courier.Arrival {
	return courier.Arrival{EnvelopeID: e.Envelope.ID, Attempt: 1, Event: e.Event, Payload: courier.Payload{ShipmentID: e.ShipmentID, Status: status}}
}

// A worker that does again what another did that died, before the run was concluded, does it once, and says the same of it.
func TestProcessAgain(t *testing.T) {
	t.Parallel()
	r, ctx := open(t), t.Context()
	e := accepted(1, "a")
	r.receiveAll(t, e)
	process := func(a courier.Arrival) (effect courier.Effect) {
		t.Helper()
		if err := r.run(t, a, func(got courier.Effect) error {
			effect = got
			return errDied
		}); !errors.Is(err, errDied) {
			t.Fatal(err)
		}
		return effect
	}
	first := process(arrival(e, "delivered"))
	if first.Outcome != courier.OutcomeApplied || first.Previous != "" || first.Current != "delivered" {
		t.Errorf("the effect is %+v", first)
	}
	newer := accepted(2, "a")
	newer.Event.OccurredAt = newer.Event.OccurredAt.Add(time.Hour)
	for range 2 {
		if got := process(arrival(newer, "returned")); got.Outcome != courier.OutcomeApplied || got.Previous != "delivered" || got.Current != "returned" {
			t.Errorf("the effect of a newer event is %+v", got)
		}
		if got := process(arrival(e, "delivered")); got != first {
			t.Errorf("done again, the effect is %+v, want %+v", got, first)
		}
	}
	if s, err := r.Get(ctx, "shp_1"); err != nil || s.CurrentState != "returned" || s.LastEventID != "evt_2" {
		t.Errorf("the shipment is %+v, %v", s, err)
	}
	if n, err := r.records.CountDocuments(ctx, bson.D{}); n != 0 || err != nil {
		t.Errorf("%d records of runs that were not concluded, %v", n, err)
	}
	found, _, err := r.Events(ctx, "evt_1", "")
	if err != nil || len(found) != 1 || found[0].Status != courier.StatusProcessing {
		t.Errorf("the ledger has %+v, %v", found, err)
	}
}

var errDied = errors.New("the worker dies")

// run has an event processed as the worker's handler would, and concluded unless then returns an error.
func (r *Repo) run(t *testing.T, a courier.Arrival, then func(courier.Effect) error) error {
	t.Helper()
	now := time.Now()
	d := eventing.Delivery{Consumer: "shipment-projection", EventID: a.EnvelopeID, EventType: a.Event.EventType, Payload: []byte("{}")}
	_, run, err := r.events.Arrive(t.Context(), d, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return r.events.Succeed(t.Context(), eventing.Success{Run: run, Now: now, InboxUntil: now.Add(time.Hour), Effect: func(ctx context.Context, tx any) error {
		effects, err := r.Process(ctx, tx.(*mongostore.Tx), []courier.Arrival{a}, now, r.Until(now))
		if err != nil {
			return err
		}
		return then(effects[0])
	}})
}

// Effects are kept no longer than they may be asked for.
func TestEffectsAreForgotten(t *testing.T) {
	t.Parallel()
	r, ctx := open(t), t.Context()
	const events = 40
	for n := range events {
		e := accepted(n, "a")
		e.Event.OccurredAt = e.Event.OccurredAt.Add(time.Duration(n) * time.Second)
		r.receiveAll(t, e)
		if err := r.run(t, arrival(e, fmt.Sprint("state ", n)), func(courier.Effect) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := mongoread.One[shipment](ctx, r.shipments, bson.D{eq("_id", "shp_1")})
	if err != nil || doc == nil || len(doc.Effects) > keptEffects || doc.CurrentState != fmt.Sprint("state ", events-1) {
		t.Errorf("the shipment is %+v, %v", doc, err)
	}
	if n, err := r.ledger.CountDocuments(ctx, bson.D{eq("status", "processed"), eq("outcome", "applied")}); n != events || err != nil {
		t.Errorf("%d entries are processed, %v; want %d", n, err, events)
	}
}

// An entry goes when it has expired and nothing remembers its event.
func TestSweepKeepsWhatIsRemembered(t *testing.T) {
	t.Parallel()
	r, ctx, now := open(t), t.Context(), time.Now()
	e := accepted(1, "a")
	r.receiveAll(t, e)
	if _, err := r.ledger.UpdateOne(ctx, bson.D{eq("_id", e.Event.IdempotencyKey)}, bson.D{eq("$set", bson.D{eq("status", "processed"), eq("expiresAt", now)})}); err != nil {
		t.Fatal(err)
	}
	sweep := func(what string, at time.Time, want int64) {
		t.Helper()
		if n, err := r.Sweep(ctx, at, 10); err != nil || n != want {
			t.Errorf("%s: %d entries went, %v, want %d", what, n, err, want)
		}
	}
	sweep("before its time", now.Add(-time.Second), 0)
	sweep("while it is to be sent", now.Add(time.Second), 0)
	db := r.ledger.Database()
	if _, err := db.Collection("event_outbox").UpdateMany(ctx, bson.D{}, bson.D{eq("$set", bson.D{eq("status", "sent")})}); err != nil {
		t.Fatal(err)
	}
	inbox := db.Collection("consumer_inbox")
	if _, err := inbox.InsertOne(ctx, bson.D{eq("_id", "c,"+e.Envelope.ID), eq("consumer", "c"), eq("eventId", e.Envelope.ID), eq("processedAt", now)}); err != nil {
		t.Fatal(err)
	}
	sweep("while the inbox remembers it", now.Add(time.Second), 0)
	if _, err := inbox.DeleteMany(ctx, bson.D{}); err != nil {
		t.Fatal(err)
	}
	sweep("when nothing does", now.Add(time.Second), 1)
}

// What a courier sends beside the known fields comes back as it was, whatever it is called.
func TestMetadata(t *testing.T) {
	t.Parallel()
	for text, isDocument := range map[string]bool{
		`{}`: true, `{"a":1,"b":[true,null,"x<y",{"c":-2.5}]}`: true, `{"n":9223372036854775807}`: true,
		`{"n":9223372036854775808}`: false, `{"n":1.0}`: false, `{"n":1e400}`: false, `{"n":0.1000}`: false,
		`{"$where":"x"}`: false, `{"a.b":1}`: false, `{"a":{"":1}}`: false,
		strings.Repeat(`{"a":`, 70) + "{}" + strings.Repeat("}", 70):   true,
		strings.Repeat(`{"a":`, 100) + "{}" + strings.Repeat("}", 100): false,
	} {
		b, err := bson.Marshal(struct{ M metadata }{metadata(text)})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var back struct{ M metadata }
		if err := bson.Unmarshal(b, &back); err != nil || string(back.M) != text {
			t.Errorf("%s comes back as %s, %v", text, back.M, err)
		}
		if got := bson.Raw(b).Lookup("m").Type == bson.TypeEmbeddedDocument; got != isDocument {
			t.Errorf("%s: a document: %t, want %t", text, got, isDocument)
		}
	}
}

// A shipment's parts change only by events that are newer, to the microsecond.
func TestVersionsHaveMicroseconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 2, 26, 12, 0, 0, 123456000, time.UTC)
	v := courier.Version{At: at, Tie: "a\nb"}
	if got := versionOf(v).version(); got != v {
		t.Errorf("%+v, want %+v", got, v)
	}
	if got := versionOf(courier.Version{}).version(); got != (courier.Version{}) {
		t.Errorf("%+v, want none", got)
	}
}

// What says nothing about an event is no fault of its group, which else would be tried by halves.
func TestMomentary(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"a lost cursor":  mongo.CommandError{Code: 43, Name: "CursorNotFound"},
		"an end of time": context.DeadlineExceeded,
		"no primary":     mongo.CommandError{Code: 10107, Labels: []string{"RetryableWriteError"}},
	} {
		if !errors.Is(momentary(fmt.Errorf("read: %w", err)), intake.ErrUnavailable) {
			t.Errorf("%s is taken for an event's fault", name)
		}
	}
	if errors.Is(momentary(mongo.CommandError{Code: 2, Name: "BadValue"}), intake.ErrUnavailable) {
		t.Error("an event's fault is taken for the server's")
	}
}
