package testserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// What SQLite leaves out of a query is what the filter does not select.
func TestFerretFilters(t *testing.T) {
	t.Parallel()
	things := mongoCollection(t, MongoURL(t))
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	docs := []bson.M{
		{"_id": "int", "v": 2, "o": bson.M{"v": 2}},
		{"_id": "double", "v": 2.5, "o": bson.M{"v": 2.5}},
		{"_id": "text", "v": "2", "o": bson.M{"v": "2"}},
		{"_id": "time", "v": day, "o": bson.M{"v": day}},
		{"_id": "null", "v": nil, "o": bson.M{"v": nil}},
		{"_id": "none"},
		{"_id": "list", "v": bson.A{1, 3, "2"}, "o": bson.A{bson.M{"v": 1}, bson.M{"v": 3}, bson.M{"v": "2"}}},
	}
	if _, err := things.InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	is := func(operator string, value any) bson.M { return bson.M{operator: value} }
	for _, c := range []struct {
		value any
		want  string
	}{
		{2, "int"},
		{1, "list"},
		{is("$gt", 2), "double list"},
		{is("$gte", 2), "double int list"},
		{bson.M{"$gt": 2, "$lt": 10}, "double list"},
		{is("$lte", int64(2)), "int list"},
		{is("$in", bson.A{2, 3}), "int list"},
		{"2", "list text"},
		{is("$in", bson.A{"2", "x"}), "list text"},
		{is("$in", bson.A{"2", 2}), "int list text"},
		{is("$gte", day), "time"},
		{is("$lt", day), ""},
		{nil, "none null"},
		{is("$exists", true), "double int list null text time"},
	} {
		for _, field := range []string{"v", "o.v"} {
			cursor, err := things.Find(t.Context(), bson.M{field: c.value})
			if err != nil {
				t.Fatal(err)
			}
			var found []struct {
				ID string `bson:"_id"`
			}
			if err := cursor.All(t.Context(), &found); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, f := range found {
				ids = append(ids, f.ID)
			}
			slices.Sort(ids)
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%s: %v selects %q, want %q", field, c.value, got, c.want)
			}
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
