package mongostore

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/mongoread"
	"github.com/waybill-go/waybill/internal/testserver"
)

// killer has the server forget the cursors that are about to be asked for more, as long as it has any left to kill.
type killer struct {
	server *mongo.Database
	left   int
	failed error
}

func (k *killer) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.CommandName != "getMore" || k.left == 0 {
		return
	}
	k.left--
	k.failed = errors.Join(k.failed, k.server.RunCommand(context.Background(), bson.D{
		{Key: "killCursors", Value: e.Command.Lookup("collection").StringValue()}, {Key: "cursors", Value: bson.A{e.Command.Lookup("getMore").Int64()}},
	}).Err())
}

// What is read is complete, although the server forgets the cursor; if it does so each time, it is not available.
func TestCursorIsLost(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const n = 300 // more than the first answer has
	docs := make([]bson.D, n)
	for i := range docs {
		docs[i] = bson.D{eq("_id", i)}
	}
	if _, err := s.db.Collection("many").InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	k := &killer{server: s.db}
	client, err := mongo.Connect(options.Client().ApplyURI(testserver.MongoURL(t)).SetMonitor(&event.CommandMonitor{Started: k.started}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	many := client.Database(s.db.Name()).Collection("many")
	for _, test := range []struct{ kills, want int }{{0, n}, {1, n}, {mongoread.Tries - 1, n}, {mongoread.Tries, 0}} {
		k.left = test.kills
		got, err := find[bson.D](t.Context(), many, bson.D{})
		if len(got) != test.want || k.failed != nil || k.left != 0 || (err != nil) != (test.want == 0) || err != nil && !errors.Is(err, eventing.ErrUnavailable) {
			t.Errorf("after %d kills: %d documents, %v; %d kills left, %v", test.kills, len(got), err, k.left, k.failed)
		}
	}
}
