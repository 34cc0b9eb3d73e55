package courier

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The projection is a function of the set of events: neither their order nor their
// repetition changes it, and what arrives in order is applied.
func TestTheOrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type arrival struct {
			event   Event
			payload Payload
		}
		var events []arrival
		for i := range rapid.IntRange(1, 12).Draw(t, "events") {
			events = append(events, arrival{
				Event{
					EventID:        fmt.Sprintf("evt_%d", rapid.IntRange(0, 3).Draw(t, "id")), // two couriers may use one
					IdempotencyKey: fmt.Sprintf("key_%d", i),
					OccurredAt:     time.Unix(rapid.Int64Range(0, 3).Draw(t, "second"), 0), // with ties
					Payload:        fmt.Appendf(nil, `{"shipmentId":"shp_1","note":%d}`, i),
				},
				Payload{
					ShipmentID: "shp_1",
					Status:     rapid.SampledFrom([]string{"", "in_transit", "delivered"}).Draw(t, "status"),
					OrderID:    rapid.SampledFrom([]string{"", "ord_1", "ord_2"}).Draw(t, "order"),
				},
			})
		}
		project := func(events []arrival) string {
			r := &Projection{}
			for _, a := range events {
				r.Apply(a.event, a.payload)
			}
			r.Previous = "" // which state a shipment had before does depend on it
			return fmt.Sprintf("%+v", *r)
		}
		sorted := slices.SortedFunc(slices.Values(events), func(a, b arrival) int {
			if VersionOf(a.event).After(VersionOf(b.event)) {
				return 1
			}
			return -1
		})
		want := project(sorted)
		shuffled := rapid.Permutation(append(slices.Clone(events), events[0])).Draw(t, "arrivals")
		if got := project(shuffled); got != want {
			t.Fatalf("arrived as %v:\n got %s\nwant %s", shuffled, got, want)
		}
		r := &Projection{}
		for i, a := range sorted {
			if !r.Apply(a.event, a.payload) {
				t.Fatalf("event %d is newer than all before it, and was not applied", i)
			}
			if r.Apply(a.event, a.payload) {
				t.Fatalf("event %d was applied twice", i)
			}
		}
	})
}
