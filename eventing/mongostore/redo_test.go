package mongostore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	address := testserver.MongoURL(t)
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	return New(client.Database(address[strings.LastIndex(address, "/")+1:]), Config{})
}

// A process that is paused in the middle of completing may go on much later: it changes nothing
// any more.
func TestLateStepsChangeNothing(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), t.Context()
	entry := func(rev int64, status eventing.ReviewStatus) deadEntry {
		return deadEntry{Consumer: "billing", Rev: rev, Status: string(status), AttemptHistory: []attemptDoc{}, Acts: []actDoc{}}
	}
	row := newOutboxDoc(eventing.OutboxRow{ID: "r", EventID: "e", Consumer: "billing", Generation: 1, Seq: 1})
	insert, err := insertOp(outboxCollection, row)
	if err != nil {
		t.Fatal(err)
	}
	died := op{Do: doBury, Death: &deathDoc{EventID: "e", Entry: entry(1, eventing.StatusPending), Dies: true, Attempts: 1}}
	replayed := op{Do: doBury, Death: &deathDoc{EventID: "e", Entry: entry(2, eventing.StatusReplayed)}}
	forced := newOutboxDoc(eventing.OutboxRow{ID: "f", EventID: "e", Consumer: "billing", Generation: 2, Seq: 2})
	insertForced, err := insertOp(outboxCollection, forced)
	if err != nil {
		t.Fatal(err)
	}
	drop := op{Do: doDropReplays, EventID: "e", Consumer: "billing", Generation: 1}
	exhume := op{Do: doExhume, EventID: "e", Consumer: "billing", Rev: 2}
	for _, steps := range [][]op{{died, died}, {replayed, insert}, {died, insert, exhume}, {insertForced, drop, insertForced}} {
		if err := s.redo(ctx, steps); err != nil {
			t.Fatal(err)
		}
	}
	event, err := findOne[deadDoc](ctx, s.dead, bson.D{eq("_id", "e")})
	if err != nil || event == nil || len(event.Consumers) != 1 || event.ReviewStatus != "replayed" || event.Attempts != 1 {
		t.Errorf("the dead letter is %+v, %v; want the later state, and each attempt counted once", event, err)
	}
	rows, err := find[outboxDoc](ctx, s.outbox, bson.D{})
	if err != nil || len(rows) != 1 || rows[0].ID != "f" {
		t.Errorf("the outbox has %+v, %v; want the later row alone", rows, err)
	}
}

// What nobody completes is completed by the next look of a dispatcher.
func TestSweep(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), t.Context()
	insert, err := insertOp(outboxCollection, newOutboxDoc(eventing.OutboxRow{ID: "r", EventID: "e", Seq: 1}))
	if err != nil {
		t.Fatal(err)
	}
	doc := inboxDoc{ID: "billing,e", Consumer: "billing", EventID: "e", Rev: 1, Redo: &redoDoc{At: time.Now(), Ops: []op{insert}}}
	if _, err := s.inbox.InsertOne(ctx, doc); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(ctx, eventing.ClaimRequest{Now: time.Now(), Partitions: []eventing.PartitionClaim{{Limit: 1}}})
	if err != nil || len(c.Rows) != 1 {
		t.Errorf("claimed %v, %v; want the row that was left to be written", c.Rows, err)
	}
	if n, err := s.inbox.CountDocuments(ctx, bson.D{}); n != 0 || err != nil {
		t.Errorf("%d documents are left, %v", n, err)
	}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	for want, in := range map[string]any{
		`{"a":1}`: `{"a":1}`, "\xff\x00": []byte("\xff\x00"), `{"a":"b"}`: bson.D{{Key: "a", Value: "b"}}, "": nil,
	} {
		b, err := bson.Marshal(bson.D{{Key: "payload", Value: in}})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct{ Payload payload }
		if err := bson.Unmarshal(b, &doc); err != nil || string(doc.Payload) != want {
			t.Errorf("%v is read as %q, %v; want %q", in, doc.Payload, err, want)
		}
		again, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if kind := bson.Raw(again).Lookup("payload").Type; (kind == bson.TypeBinary) != (want == "\xff\x00") {
			t.Errorf("%q is written as %v", want, kind)
		}
	}
}

// A dead letter must be storable whatever the fields of its event are called.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]bool{
		`{"a":{"b":[1]}}`: true, `[1]`: false, `"a"`: false, `{"$a":1}`: false, `{"a":{"b.c":1}}`: false, `{"a":[{"":1}]}`: false,
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200): false,
	} {
		if got := snapshot([]byte(payload)) != nil; got != want {
			t.Errorf("%.40s: %v, want %v", payload, got, want)
		}
	}
	if !slices.IsSorted([]int64{nextRev(0), nextRev(nextRev(0))}) {
		t.Error("revisions grow")
	}
}

// What cannot be completed does not keep dispatchers from the rest, and is told of.
func TestStuck(t *testing.T) {
	t.Parallel()
	s, ctx := newStore(t), t.Context()
	doc := inboxDoc{ID: "billing,e", Consumer: "billing", EventID: "e", Rev: 1, Redo: &redoDoc{At: time.Now(), Ops: []op{{Do: "fly"}}}}
	if _, err := s.inbox.InsertOne(ctx, doc); err != nil {
		t.Fatal(err)
	}
	if _, err := s.outbox.InsertOne(ctx, newOutboxDoc(eventing.OutboxRow{ID: "r", EventID: "r", Seq: 1})); err != nil {
		t.Fatal(err)
	}
	c, err := s.Claim(ctx, eventing.ClaimRequest{Now: time.Now(), Partitions: []eventing.PartitionClaim{{Limit: 1}}})
	if err != nil || len(c.Rows) != 1 {
		t.Errorf("claimed %v, %v; want the other row", c.Rows, err)
	}
	if _, err := s.Prune(ctx, eventing.PruneRequest{Now: time.Now(), Limit: 1}); err == nil || !strings.Contains(err.Error(), "fly") {
		t.Errorf("prune: %v, want an error that says what is left", err)
	}
}
