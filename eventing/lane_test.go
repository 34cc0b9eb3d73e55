package eventing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// The outbox's own rule decides where the event says nothing.
func TestOutboxLane(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ctx, store := context.Background(), memstore.New()
	var asked []eventing.Envelope
	outbox := eventing.NewOutbox[*memstore.Tx](store, eventing.OutboxConfig{
		Now: func() time.Time { return noon },
		Lane: func(e eventing.Envelope) eventing.Lane {
			asked = append(asked, e)
			switch string(e.Payload) {
			case `{"Number":1}`:
				return eventing.Critical
			case `{"Number":2}`:
				return ""
			case `{"Number":3}`:
				return eventing.Expedited
			}
			return "fast"
		},
	})
	add := func(id string, number int, lane eventing.Lane) error {
		e := eventing.New("", "", parcel{number})
		e.ID, e.Lane = id, lane
		return outbox.InTx(ctx, func(tx *memstore.Tx) error { return outbox.Append(ctx, tx, e) })
	}
	for id, number := range map[string]int{"e1": 1, "e2": 2} {
		if err := add(id, number, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range asked {
		if e.ID == "" || e.Type != "parcel" || !e.OccurredAt.Equal(noon) || e.CorrelationID != e.ID || e.SchemaVersion != 1 {
			t.Errorf("the rule gets the completed event, not %+v", e)
		}
	}
	if err := add("e0", 4, eventing.Critical); err != nil {
		t.Errorf("an event that says its lane is not asked about: %v", err)
	}
	for _, number := range []int{3, 4} {
		err := add("bad", number, "")
		var invalid *eventing.InvalidEventError
		if !errors.As(err, &invalid) || invalid.EventID != "bad" || invalid.Field != "lane" {
			t.Errorf("there is no such lane: %v", err)
		}
	}
	claimed, err := store.Claim(ctx, eventing.ClaimRequest{Now: noon, Partitions: allPartitions(), Critical: 10})
	if err != nil {
		t.Fatal(err)
	}
	lanes := map[string]eventing.Lane{}
	for _, row := range claimed.Rows {
		lanes[row.EventID] = row.Lane
	}
	if len(lanes) != 3 || lanes["e0"] != eventing.Critical || lanes["e1"] != eventing.Critical || lanes["e2"] != "" {
		t.Errorf("the lanes are %v", lanes)
	}
}

func allPartitions() []eventing.PartitionClaim {
	claims := make([]eventing.PartitionClaim, eventing.Partitions)
	for p := range claims {
		claims[p] = eventing.PartitionClaim{Partition: p, Limit: 10}
	}
	return claims
}
