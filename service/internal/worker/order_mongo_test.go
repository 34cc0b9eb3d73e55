package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/mongorepo"
)

type mongoProjection struct {
	events *mongostore.Store
	repo   *mongorepo.Repo
}

func openMongo(t *testing.T) projection {
	t.Helper()
	address := testserver.MongoURL(t)
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	db := client.Database(address[strings.LastIndex(address, "/")+1:])
	if err := mongorepo.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	events := mongostore.New(db, mongostore.Config{})
	return mongoProjection{events, mongorepo.New(db, events, mongorepo.Config{Retention: time.Hour, DeadLetterRetention: time.Hour})}
}

func (p mongoProjection) process(ctx context.Context, arrivals []courier.Arrival) (effects []courier.Effect, err error) {
	now := time.Now()
	err = p.events.InTx(ctx, func(tx *mongostore.Tx) (err error) {
		effects, err = p.repo.Process(ctx, tx, arrivals, now, now.Add(time.Hour))
		return err
	})
	return effects, err
}

func (p mongoProjection) shipment(ctx context.Context, id string) (courier.Shipment, error) {
	return p.repo.Get(ctx, id)
}

// once drops repeats, which consumer_inbox keeps from a shipment. What one of them is told that comes all the same depends on whether
// the shipment still has to know the event's effect.
func once(arrivals []courier.Arrival) []courier.Arrival {
	seen := map[string]bool{}
	return slices.DeleteFunc(arrivals, func(a courier.Arrival) bool {
		again := seen[a.EnvelopeID]
		seen[a.EnvelopeID] = true
		return again
	})
}
