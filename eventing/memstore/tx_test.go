package memstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

type placed struct{ Number string }

var errUndo = errors.New("undo")

func outboxOf(s *memstore.Store) *eventing.Outbox[*memstore.Tx] {
	return eventing.NewOutbox[*memstore.Tx](s, eventing.OutboxConfig{})
}

func claim(t *testing.T, s *memstore.Store) []string {
	t.Helper()
	r := eventing.ClaimRequest{Now: time.Now()}
	for p := range eventing.Partitions {
		r.Partitions = append(r.Partitions, eventing.PartitionClaim{Partition: p, Limit: 100})
	}
	claimed, err := s.Claim(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, row := range claimed.Rows {
		ids = append(ids, row.EventID)
	}
	return ids
}

func equalStrings(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func event(id, key string) eventing.Event[placed] {
	e := eventing.New("order", key, placed{id})
	e.ID = id
	return e
}

// do is what every test of a transaction does in one.
func do(ctx context.Context, o *eventing.Outbox[*memstore.Tx], tx *memstore.Tx) error {
	tx.Set("balance", "90")
	tx.Append("entries", "-10")
	return o.Append(ctx, tx, event("e1", "o1"))
}

func TestCommitShowsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	o := outboxOf(s)
	err := o.InTx(t.Context(), func(tx *memstore.Tx) error {
		if err := do(t.Context(), o, tx); err != nil {
			return err
		}
		if v, ok := tx.Get("balance"); !ok || v != "90" {
			t.Errorf("the transaction reads %q, %v of what it wrote, want 90", v, ok)
		}
		if v, ok := s.Get("balance"); ok {
			t.Errorf("another reader sees %q before the commit", v)
		}
		equalStrings(t, "list before the commit", s.List("entries"))
		equalStrings(t, "claimed before the commit", claim(t, s))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := s.Get("balance"); v != "90" {
		t.Errorf("after the commit the balance is %q, want 90", v)
	}
	equalStrings(t, "list", s.List("entries"), "-10")
	equalStrings(t, "claimed", claim(t, s), "e1")
}

func TestNothingOfARolledBackTransactionRemains(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(s *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (want, err error){
		"error": func(_ *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (error, error) {
			ctx := context.Background()
			return errUndo, o.InTx(ctx, func(tx *memstore.Tx) error { return errors.Join(do(ctx, o, tx), errUndo) })
		},
		"crash": func(_ *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (error, error) {
			ctx := eventing.WithFaults(context.Background(), func(eventing.FaultPoint) error { return errUndo })
			return errUndo, o.InTx(ctx, func(tx *memstore.Tx) error { return do(ctx, o, tx) })
		},
		"canceled": func(_ *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (error, error) {
			ctx, cancel := context.WithCancel(context.Background())
			return context.Canceled, o.InTx(ctx, func(tx *memstore.Tx) error {
				defer cancel()
				return do(ctx, o, tx)
			})
		},
		"row ID taken": func(s *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (error, error) {
			ctx := context.Background()
			return errUndo, o.InTx(ctx, func(tx *memstore.Tx) error {
				if err := do(ctx, o, tx); err != nil {
					return err
				}
				if err := o.Append(ctx, tx, event("e1", "o1")); err == nil {
					t.Error("a second row with the same ID was inserted")
				}
				return errUndo
			})
		},
		"panic": func(_ *memstore.Store, o *eventing.Outbox[*memstore.Tx]) (want, err error) {
			ctx := context.Background()
			defer func() { want, _ = recover().(error); err = want }()
			err = o.InTx(ctx, func(tx *memstore.Tx) error {
				_ = do(ctx, o, tx)
				panic(errUndo)
			})
			return nil, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := memstore.New()
			o := outboxOf(s)
			want, err := run(s, o)
			if want == nil || !errors.Is(err, want) {
				t.Fatalf("got error %v, want %v", err, want)
			}
			if v, ok := s.Get("balance"); ok {
				t.Errorf("the balance is %q", v)
			}
			equalStrings(t, "list", s.List("entries"))
			equalStrings(t, "claimed", claim(t, s))
			if err := o.InTx(t.Context(), func(tx *memstore.Tx) error { return do(t.Context(), o, tx) }); err != nil {
				t.Errorf("the next transaction fails: %v", err)
			}
		})
	}
}

// open begins a transaction and returns when it is open; commit ends it.
func open(t *testing.T, s *memstore.Store) (commit func()) {
	t.Helper()
	opened, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- s.InTx(context.Background(), func(tx *memstore.Tx) error {
			tx.Set("open", "yes")
			close(opened)
			<-end
			return nil
		})
	}()
	<-opened
	return func() {
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestReadersDoNotWaitForTheOpenTransaction(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	commit := open(t, s)
	defer commit()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a reader that waits gets an error
	defer cancel()

	d := eventing.Delivery{Consumer: "c", EventID: "e1", OrderingKey: "o1"}
	if decision, _, err := s.Arrive(ctx, d, nil, time.Now()); err != nil || decision != eventing.DecideRun {
		t.Errorf("Arrive: %v, %v", decision, err)
	}
	if _, err := s.Due(ctx, eventing.DueRequest{Consumer: "c", Limit: 1}); err != nil {
		t.Errorf("Due: %v", err)
	}
	if _, err := s.Stats(ctx); err != nil {
		t.Errorf("Stats: %v", err)
	}
	if _, err := s.DeadLetters(ctx, eventing.DeadLetterFilter{}); err != nil {
		t.Errorf("DeadLetters: %v", err)
	}
	until := time.Now().Add(time.Minute)
	table, err := s.AcquireLeases(ctx, eventing.LeaseRequest{Scope: "x", Holder: "a", Until: until})
	if err != nil || len(table.Held) != eventing.Partitions {
		t.Errorf("AcquireLeases: %d, %v", len(table.Held), err)
	}
	equalStrings(t, "claimed", claim(t, s))
}

func TestABlockedWriterHonoursItsContext(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	commit := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan error, 1)
	go func() {
		blocked <- s.InTx(ctx, func(*memstore.Tx) error {
			t.Error("two transactions are open")
			return nil
		})
	}()
	cancel()
	if err := <-blocked; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	commit()
}

func TestALeaseTakenOverWhileTheHandlerRunsRollsBack(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	now := time.Now()
	table, err := s.AcquireLeases(t.Context(), eventing.LeaseRequest{Scope: "c", Holder: "a", Now: now, Until: now.Add(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	takeOver := func(context.Context, any) error {
		_, err := s.AcquireLeases(t.Context(), eventing.LeaseRequest{Scope: "c", Holder: "b", Now: now.Add(time.Second), Until: now.Add(time.Minute)})
		return err
	}
	run := eventing.Run{Delivery: eventing.Delivery{Consumer: "c", EventID: "e1"}, Lease: &table.Held[0]}
	err = s.Succeed(t.Context(), eventing.Success{Run: run, Now: now, Effect: func(ctx context.Context, tx any) error {
		tx.(*memstore.Tx).Set("effect", "1")
		return nil
	}, Finish: takeOver}) // later than the check that comes first
	if !errors.Is(err, eventing.ErrLeaseLost) {
		t.Errorf("got %v, want ErrLeaseLost", err)
	}
	if _, ok := s.Get("effect"); ok {
		t.Error("the effect of a worker that was taken over from is committed")
	}
}

func TestATransactionIsRefusedWhereItDoesNotBelong(t *testing.T) {
	t.Parallel()
	s, other := memstore.New(), memstore.New()
	var ended *memstore.Tx
	if err := s.InTx(t.Context(), func(tx *memstore.Tx) error {
		ended = tx
		if err := other.AppendRows(t.Context(), tx, nil); err == nil {
			t.Error("another store takes the transaction")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ended.Set("late", "1")
	if _, ok := s.Get("late"); ok {
		t.Error("a transaction that has ended still writes")
	}
	for name, tx := range map[string]*memstore.Tx{"ended": ended, "nil": nil} {
		if err := s.AppendRows(t.Context(), tx, nil); err == nil {
			t.Errorf("%s: rows were appended", name)
		}
	}
}

func TestATransactionalHandlerCannotBeginAnother(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	var nested error
	c, err := eventing.NewConsumer(s, func(ctx context.Context, e eventing.Envelope) error {
		tx, _ := eventing.TxFromContext[*memstore.Tx](ctx)
		tx.Append("handled", e.ID)
		nested = s.InTx(ctx, func(*memstore.Tx) error { return nil })
		return nil
	}, eventing.ConsumerConfig{Name: "c", Transactional: true})
	if err != nil {
		t.Fatal(err)
	}
	o := outboxOf(s)
	if err := o.InTx(t.Context(), func(tx *memstore.Tx) error { return o.Append(t.Context(), tx, event("e1", "o1")) }); err != nil {
		t.Fatal(err)
	}
	claimed, err := s.Claim(t.Context(), eventing.ClaimRequest{
		Partitions: []eventing.PartitionClaim{{Partition: eventing.PartitionOf("order/o1", "e1"), Limit: 1}}, Now: time.Now(),
	})
	if err != nil || len(claimed.Rows) != 1 {
		t.Fatalf("claimed %v, %v", claimed, err)
	}
	env, err := eventing.DecodeEnvelope(claimed.Rows[0].Payload)
	if err != nil {
		t.Fatal(err)
	}
	m, err := eventing.EnvelopeCodec{}.Marshal(env)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Receive(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if nested == nil {
		t.Error("the handler began a second transaction")
	}
	equalStrings(t, "handled", s.List("handled"), "e1")
}

func TestAHandlersAppendWakesTheDispatcher(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	woken, stop := s.Sleep()
	defer stop()
	err := s.Succeed(t.Context(), eventing.Success{
		Run: eventing.Run{Delivery: eventing.Delivery{Consumer: "c", EventID: "e1"}},
		Effect: func(ctx context.Context, tx any) error {
			return outboxOf(s).Append(ctx, tx.(*memstore.Tx), event("e2", "o1"))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	default:
		t.Error("nobody was woken")
	}
}
