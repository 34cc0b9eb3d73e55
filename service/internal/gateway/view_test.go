package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// view looks at a gateway's database beside it.
type view interface {
	// applied returns the idempotency keys of the effects: one for each effect.
	applied(ctx context.Context) ([]string, error)
	// dead returns those of the open dead letters of the worker.
	dead(ctx context.Context) ([]string, error)
	// unsettled counts what is still to be done: pending outbox rows, deliveries that are not dead,
	// ledger entries in no final state.
	unsettled(ctx context.Context) (map[string]int, error)
	// knows reports whether the inbox knows the event of an envelope.
	knows(ctx context.Context, envelope string) (bool, error)
	// forget removes what the inbox knows of an event, and returns the id of its envelope.
	forget(ctx context.Context, key string) (envelope string, err error)
}

// openView opens the view of an address until the test ends.
func openView(t *testing.T, storeURL string) view {
	t.Helper()
	if strings.HasPrefix(storeURL, "mongodb:") {
		return openMongoView(t, storeURL)
	}
	return sqlView{storetest.Open(t, storeURL)}
}

type sqlView struct{ *store.Store }

func (v sqlView) applied(ctx context.Context) ([]string, error) {
	return texts(ctx, v.Read, `SELECT idempotency_key FROM shipment_events`)
}

func (v sqlView) dead(ctx context.Context) ([]string, error) {
	return texts(ctx, v.Read, `SELECT l.idempotency_key FROM dead_letter_consumers d JOIN courier_ledger l ON l.envelope_id = d.event_id
		WHERE d.status = 'pending' AND l.status = 'dead_lettered'`)
}

func (v sqlView) unsettled(ctx context.Context) (map[string]int, error) {
	left := map[string]int{}
	for what, count := range map[string]string{
		"pending outbox rows":                  `SELECT count(*) FROM event_outbox WHERE status = 'pending'`,
		"deliveries retrying or parked":        `SELECT count(*) FROM event_deliveries WHERE state <> 'dead'`,
		"ledger entries that are not final":    `SELECT count(*) FROM courier_ledger WHERE status NOT IN ('processed', 'dead_lettered')`,
		"dead letters without a ledger's word": `SELECT count(*) FROM dead_letter_consumers d WHERE NOT EXISTS (SELECT 1 FROM courier_ledger l WHERE l.envelope_id = d.event_id AND l.status = 'dead_lettered')`,
	} {
		var n int
		if err := v.Read.QueryRowContext(ctx, count).Scan(&n); err != nil {
			return nil, err
		}
		if n > 0 {
			left[what] = n
		}
	}
	return left, nil
}

func (v sqlView) forget(ctx context.Context, key string) (envelope string, err error) {
	db := v.Read
	if v.Embedded {
		return "", errors.New("a SQLite file is opened for reading only")
	}
	if err := db.QueryRowContext(ctx, `SELECT envelope_id FROM courier_ledger WHERE idempotency_key = $1`, key).Scan(&envelope); err != nil {
		return "", err
	}
	_, err = db.ExecContext(ctx, `DELETE FROM processed_events WHERE event_id = $1`, envelope)
	return envelope, err
}

func (v sqlView) knows(ctx context.Context, envelope string) (bool, error) {
	found, err := texts(ctx, v.Read, `SELECT event_id FROM processed_events WHERE event_id = $1`, envelope)
	return len(found) > 0, err
}

// accounted says what of the accepted events, poisonous or not, has not been done exactly once: applied,
// or dead-lettered if poisonous; nothing else, and nothing left over. progress grows while there is some.
func accounted(ctx context.Context, v view, accepted map[string]bool) (progress int, problem, err error) {
	applied, err := v.applied(ctx)
	if err != nil {
		return 0, nil, err
	}
	dead, err := v.dead(ctx)
	if err != nil {
		return 0, nil, err
	}
	left, err := v.unsettled(ctx)
	if err != nil {
		return 0, nil, err
	}
	var problems []error
	if len(left) > 0 {
		problems = append(problems, fmt.Errorf("left over: %v", left))
	}
	seen := map[string]int{}
	for poisonous, keys := range map[bool][]string{false: applied, true: dead} {
		for _, key := range keys {
			seen[key]++
			if want, known := accepted[key]; !known || want != poisonous {
				problems = append(problems, fmt.Errorf("%s: accepted %t, poisonous %t, dead %t", key, known, want, poisonous))
			}
		}
	}
	var lost, doubled []string
	for key := range accepted {
		switch n := seen[key]; {
		case n == 0:
			lost = append(lost, key)
		case n > 1:
			doubled = append(doubled, key)
		}
	}
	for what, keys := range map[string][]string{"lost": lost, "done more than once": doubled} {
		if len(keys) > 0 {
			slices.Sort(keys)
			problems = append(problems, fmt.Errorf("%d events %s, such as %v", len(keys), what, keys[:min(5, len(keys))]))
		}
	}
	return len(applied) + len(dead), errors.Join(problems[:min(len(problems), 10)]...), nil
}

// stuck is how long there may be no progress, on a machine that is busy.
const stuck = 2 * time.Minute

// accountedEventually waits for that, as long as there is progress from one look to another.
func accountedEventually(t *testing.T, v view, accepted map[string]bool) {
	t.Helper()
	for done, since := -1, time.Now(); ; {
		began := time.Now()
		progress, problem, err := accounted(t.Context(), v, accepted)
		if err != nil {
			t.Fatal(err)
		}
		if problem == nil {
			return
		}
		if progress > done {
			done, since = progress, time.Now()
		}
		if time.Since(since) > stuck {
			t.Fatal(problem)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		case <-time.After(min(max(200*time.Millisecond, 10*time.Since(began)), stuck/4)): // it reads all there is, at the cost of the rest
		}
	}
}

// mongoView is a view without transactions: what it sees may be moments apart.
type mongoView struct{ db *mongo.Database }

func openMongoView(t *testing.T, storeURL string) view {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(storeURL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return mongoView{client.Database(storeURL[strings.LastIndex(storeURL, "/")+1:])}
}

// keys returns the idempotency keys of the documents that a filter selects.
func (v mongoView) keys(ctx context.Context, collection string, filter bson.D) (keys []string, err error) {
	cursor, err := v.db.Collection(collection).Find(ctx, filter, options.Find().SetProjection(bson.D{{Key: "idempotencyKey", Value: 1}}))
	if err != nil {
		return nil, err
	}
	var docs []struct {
		Key string `bson:"idempotencyKey"`
	}
	err = cursor.All(ctx, &docs)
	for _, d := range docs {
		keys = append(keys, d.Key)
	}
	return keys, err
}

func (v mongoView) applied(ctx context.Context) ([]string, error) {
	return v.keys(ctx, "shipment_events", bson.D{})
}

func (v mongoView) dead(ctx context.Context) ([]string, error) {
	return v.keys(ctx, "dead_letter_events", bson.D{{Key: "reviewStatus", Value: "pending"}})
}

func (v mongoView) unsettled(ctx context.Context) (map[string]int, error) {
	left := map[string]int{}
	for what, of := range map[string]struct {
		collection string
		filter     bson.D
	}{
		"pending outbox rows":                {"event_outbox", bson.D{{Key: "status", Value: "pending"}}},
		"deliveries retrying or parked":      {"consumer_inbox", bson.D{{Key: "delivery.state", Value: bson.D{{Key: "$in", Value: bson.A{"retrying", "parked"}}}}}},
		"steps that are not completed":       {"consumer_inbox", bson.D{{Key: "redo", Value: bson.D{{Key: "$exists", Value: true}}}}},
		"ledger entries that are not final":  {"processed_events", bson.D{{Key: "status", Value: bson.D{{Key: "$nin", Value: bson.A{"processed", "dead_lettered"}}}}}},
		"entries that are not in the outbox": {"processed_events", bson.D{{Key: "outgoing", Value: bson.D{{Key: "$exists", Value: true}}}}},
	} {
		n, err := v.db.Collection(of.collection).CountDocuments(ctx, of.filter)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			left[what] = int(n)
		}
	}
	return left, nil
}

func (v mongoView) forget(ctx context.Context, key string) (envelope string, err error) {
	var entry struct {
		EnvelopeID string `bson:"envelopeId"`
	}
	if err := v.db.Collection("processed_events").FindOne(ctx, bson.D{{Key: "_id", Value: key}}).Decode(&entry); err != nil {
		return "", err
	}
	_, err = v.db.Collection("consumer_inbox").DeleteMany(ctx, bson.D{{Key: "eventId", Value: entry.EnvelopeID}})
	return entry.EnvelopeID, err
}

func (v mongoView) knows(ctx context.Context, envelope string) (bool, error) {
	n, err := v.db.Collection("consumer_inbox").CountDocuments(ctx, bson.D{{Key: "eventId", Value: envelope}, {Key: "processedAt", Value: bson.D{{Key: "$gt", Value: time.Time{}}}}})
	return n > 0, err
}
