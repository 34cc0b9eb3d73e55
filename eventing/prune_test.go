package eventing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// further is a table beside the store's.
type further struct {
	rows  int
	calls []int // the limits
	fails error
}

func (f *further) prune(_ context.Context, _ time.Time, limit int) (int, error) {
	f.calls = append(f.calls, limit)
	n := min(f.rows, limit)
	f.rows -= n
	return n, f.fails
}

// pruneStore is one that has rows, renewed leases, and errors.
type pruneStore struct {
	*memstore.Store
	further
	leases []time.Time
	lost   int // how many leases there are, if positive
}

func (s *pruneStore) Prune(ctx context.Context, r eventing.PruneRequest) (eventing.Pruned, error) {
	n, err := s.prune(ctx, r.Now, r.Limit)
	return eventing.Pruned{Outbox: n}, err
}

func (s *pruneStore) AcquireLeases(ctx context.Context, r eventing.LeaseRequest) (eventing.LeaseTable, error) {
	s.leases = append(s.leases, r.Until)
	if s.lost > 0 && len(s.leases) > s.lost {
		return eventing.LeaseTable{}, nil
	}
	return s.Store.AcquireLeases(ctx, r)
}

func pruner(t *testing.T, store eventing.PruneStore, also map[string]eventing.PruneFunc) *eventing.Pruner {
	t.Helper()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	p, err := eventing.NewPruner(store, eventing.PrunerConfig{BatchSize: 10, Also: also, Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPruneAlso(t *testing.T) {
	t.Parallel()
	store := &pruneStore{Store: memstore.New(), further: further{rows: 5}}
	many, none := &further{rows: 25}, &further{}
	got, err := pruner(t, store, map[string]eventing.PruneFunc{"events": many.prune, "drafts": none.prune}).PruneOnce(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if want := (eventing.Pruned{Outbox: 5, Also: map[string]int{"events": 25}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, want := range map[string][]int{"store": {10}, "events": {10, 10, 10}, "drafts": {10}} {
		calls := map[string][]int{"store": store.calls, "events": many.calls, "drafts": none.calls}[name]
		if !reflect.DeepEqual(calls, want) {
			t.Errorf("%s is pruned in batches of %v, want %v", name, calls, want)
		}
	}
	if len(store.leases) != 5 || !store.leases[0].Before(store.leases[4]) {
		t.Errorf("the lease is renewed for each batch: %v", store.leases)
	}
	text, err := json.Marshal(got)
	if err != nil || !strings.Contains(string(text), `"also":{"events":25}`) {
		t.Errorf("as JSON it is %s: %v", text, err)
	}
	if text, err = json.Marshal(eventing.Pruned{}); err != nil || strings.Contains(string(text), "also") {
		t.Errorf("with nothing, it is %s: %v", text, err)
	}
}

// The error of one keeps no other from being pruned, whichever it is.
func TestPruneAlsoFails(t *testing.T) {
	t.Parallel()
	errStore, errTable := errors.New("the store fails"), errors.New("the table fails")
	store := &pruneStore{Store: memstore.New(), further: further{rows: 15, fails: errStore}}
	bad, good := &further{rows: 15, fails: errTable}, &further{rows: 25}
	p := pruner(t, store, map[string]eventing.PruneFunc{"a": bad.prune, "b": good.prune})
	got, err := p.PruneOnce(context.Background())
	if !errors.Is(err, errStore) || !errors.Is(err, errTable) || !strings.Contains(fmt.Sprint(err), "prune a: the table fails") {
		t.Errorf("the error tells of both: %v", err)
	}
	if want := map[string]int{"a": 10, "b": 25}; got.Outbox != 10 || !reflect.DeepEqual(got.Also, want) || len(bad.calls) != 1 || len(store.calls) != 1 {
		t.Errorf("the others are pruned, and what fails is left to the next round: %+v", got)
	}
	store.fails, bad.fails = nil, nil
	if got, err = p.PruneOnce(context.Background()); err != nil || got.Outbox != 5 || got.Also["a"] != 5 {
		t.Errorf("the next round prunes it: %+v, %v", got, err)
	}
}

// Whoever has lost the lease prunes nothing more.
func TestPruneAlsoUnderTheLease(t *testing.T) {
	t.Parallel()
	errStore := errors.New("the store fails")
	store := &pruneStore{Store: memstore.New(), further: further{fails: errStore}, lost: 2}
	table := &further{rows: 25}
	got, err := pruner(t, store, map[string]eventing.PruneFunc{"events": table.prune}).PruneOnce(context.Background())
	if !errors.Is(err, errStore) || len(table.calls) != 1 || table.rows != 15 || got.Also["events"] != 10 {
		t.Errorf("got %+v and %d calls: %v", got, len(table.calls), err)
	}
}

func TestPruneAlsoIsChecked(t *testing.T) {
	t.Parallel()
	for _, also := range []map[string]eventing.PruneFunc{{"events": nil}, {"": (&further{}).prune}} {
		if _, err := eventing.NewPruner(memstore.New(), eventing.PrunerConfig{Also: also}); err == nil {
			t.Errorf("%v is refused", also)
		}
	}
}
