package mongostore_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/eventing/mongostore"
)

// Processes that start together migrate together.
func TestMigrateTogether(t *testing.T) {
	t.Parallel()
	for range 5 {
		db := openDB(t)
		errs := make([]error, 8)
		var processes sync.WaitGroup
		for i := range errs {
			processes.Go(func() { errs[i] = mongostore.Migrate(t.Context(), db) })
		}
		processes.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var made []string
		for _, collection := range []string{"event_outbox", "consumer_inbox", "dead_letter_events"} {
			specifications, err := db.Collection(collection).Indexes().ListSpecifications(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range specifications {
				made = append(made, fmt.Sprintf("%s.%s", collection, s.Name))
			}
		}
		for _, name := range mongostore.Indexes() {
			if !slices.Contains(made, name) {
				t.Errorf("%s is missing among %v", name, made)
			}
		}
	}
}
