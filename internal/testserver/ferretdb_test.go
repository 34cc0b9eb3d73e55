package testserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// mongoCollection returns a collection of a new database.
func mongoCollection(t *testing.T, mongoURL string) *mongo.Collection {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(mongoURL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client.Database(mongoURL[strings.LastIndex(mongoURL, "/")+1:]).Collection("things")
}

func TestMongoDatabasesAreSeparate(t *testing.T) {
	t.Parallel()
	for range 2 {
		things := mongoCollection(t, MongoURL(t))
		if _, err := things.InsertOne(t.Context(), bson.M{"_id": "mine"}); err != nil {
			t.Error(err)
		}
	}
}

// What the corrections are for: of conditional updates at the same time one wins.
func TestFerretUpdatesAreAtomic(t *testing.T) {
	t.Parallel()
	things := mongoCollection(t, MongoURL(t))
	if _, err := things.InsertOne(t.Context(), bson.M{"_id": "it", "round": 0}); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		var won atomic.Int64
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				changed, err := things.UpdateOne(t.Context(), bson.M{"_id": "it", "round": round}, bson.M{"$inc": bson.M{"round": 1}})
				if err != nil {
					t.Error(err)
					return
				}
				won.Add(changed.ModifiedCount)
			})
		}
		writers.Wait()
		if won.Load() != 1 {
			t.Fatalf("round %d: %d of 8 conditional updates won, want 1", round, won.Load())
		}
	}
}

func TestFerretClose(t *testing.T) {
	t.Parallel()
	skipIfShort(t, "FerretDB")
	server, err := StartFerret(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(server.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(server.core.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder after Close: %v", err)
	}
}

func TestCorrectionsAreChecked(t *testing.T) {
	t.Parallel()
	source := t.TempDir()
	file := filepath.Join(source, "a.go")
	if err := os.WriteFile(file, []byte("one two two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := apply([]correction{{"a.go", 2, "two", "three"}}, source); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "one three three" {
		t.Errorf("corrected: %q, %v", text, err)
	}
	for _, c := range []correction{{"a.go", 1, "three", ""}, {"a.go", 1, "four", ""}, {"b.go", 1, "one", ""}} {
		if err := apply([]correction{c}, source); err == nil {
			t.Errorf("%v: applied to a source that is not as expected", c)
		}
	}
}
