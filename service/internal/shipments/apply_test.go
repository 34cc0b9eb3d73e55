package shipments

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/service/internal/courier"
)

// The projection is a function of the set of events: neither their order nor their
// repetition changes it, and what arrives in order is applied.
func TestTheOrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type arrival struct {
			event   courier.Event
			payload courier.Payload
		}
		var events []arrival
		for i := range rapid.IntRange(1, 12).Draw(t, "events") {
			events = append(events, arrival{
				courier.Event{
					EventID:        fmt.Sprintf("evt_%d", rapid.IntRange(0, 3).Draw(t, "id")), // two couriers may use one
					IdempotencyKey: fmt.Sprintf("key_%d", i),
					OccurredAt:     time.Unix(rapid.Int64Range(0, 3).Draw(t, "second"), 0), // with ties
					Payload:        fmt.Appendf(nil, `{"shipmentId":"shp_1","note":%d}`, i),
				},
				courier.Payload{
					ShipmentID: "shp_1",
					Status:     rapid.SampledFrom([]string{"", "in_transit", "delivered"}).Draw(t, "status"),
					OrderID:    rapid.SampledFrom([]string{"", "ord_1", "ord_2"}).Draw(t, "order"),
				},
			})
		}
		project := func(events []arrival) string {
			r := &row{last: version{at: beforeAll}}
			for _, a := range events {
				r.apply(a.event, a.payload)
			}
			r.previous = "" // which state a shipment had before does depend on it
			return fmt.Sprintf("%+v", *r)
		}
		sorted := slices.SortedFunc(slices.Values(events), func(a, b arrival) int {
			if versionOf(a.event).after(versionOf(b.event)) {
				return 1
			}
			return -1
		})
		want := project(sorted)
		shuffled := rapid.Permutation(append(slices.Clone(events), events[0])).Draw(t, "arrivals")
		if got := project(shuffled); got != want {
			t.Fatalf("arrived as %v:\n got %s\nwant %s", shuffled, got, want)
		}
		r := &row{last: version{at: beforeAll}}
		for i, a := range sorted {
			if !r.apply(a.event, a.payload) {
				t.Fatalf("event %d is newer than all before it, and was not applied", i)
			}
			if r.apply(a.event, a.payload) {
				t.Fatalf("event %d was applied twice", i)
			}
		}
	})
}
