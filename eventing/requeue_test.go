package eventing_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// dying is a store whose process dies after some batches of a Requeue.
type dying struct {
	*memstore.Store
	batches int
}

var errDied = errors.New("the process died")

func (s *dying) Requeue(ctx context.Context, seqs []int64) (int, error) {
	if s.batches == 0 {
		return 0, errDied
	}
	s.batches--
	return s.Store.Requeue(ctx, seqs)
}

// TestRequeueThatIsInterrupted: what is done again goes out in the order of each key, and
// all of it.
func TestRequeueThatIsInterrupted(t *testing.T) {
	t.Parallel()
	const each = 700
	for name, selects := range map[string]func(ids []string, sent time.Time) eventing.RequeueFilter{
		"by id":   func(ids []string, _ time.Time) eventing.RequeueFilter { return eventing.RequeueFilter{EventIDs: ids} },
		"by time": func(_ []string, sent time.Time) eventing.RequeueFilter { return eventing.RequeueFilter{SentFrom: sent} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, ctx, began := memstore.New(), context.Background(), time.Now()
			fill(t, store, each, keysOfOnePartition(3)...)
			broker := newRecorder()
			drain := func() {
				t.Helper()
				d, err := eventing.NewDispatcher(store, broker, ordered{}, eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				for pending(t, store) > 0 {
					if _, err := d.DispatchOnce(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			drain()
			first := slices.Clone(broker.ids)
			broker.ids = nil
			f := selects(first, began)
			if done, err := eventing.Requeue(ctx, &dying{store, 1}, f, false); !errors.Is(err, errDied) || done.Rows != eventing.AuditBatch {
				t.Fatalf("before the process died, %d rows were pending: %v", done.Rows, err)
			}
			if done, err := eventing.Requeue(ctx, store, f, false); err != nil || done.Rows != 3*each-eventing.AuditBatch {
				t.Fatalf("%d more rows are pending: %v", done.Rows, err)
			}
			drain()
			for _, key := range keysOfOnePartition(3) {
				of := func(ids []string) (mine []string) {
					for _, id := range ids {
						if id[:len(key)+1] == key+"/" {
							mine = append(mine, id)
						}
					}
					return mine
				}
				if again := of(broker.ids); !slices.Equal(again, of(first)) {
					t.Errorf("of %s, %d events are sent again, or in another order", key, len(again))
				}
			}
		})
	}
}
