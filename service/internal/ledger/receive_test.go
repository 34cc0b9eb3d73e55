package ledger_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// onEach runs a test on a SQLite file and on PostgreSQL.
func onEach(t *testing.T, test func(t *testing.T, s *store.Store, l *ledger.Ledger)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		s, l := openAt(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
		test(t, s, l)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		s, l := openAt(t, testserver.PostgresURL(t))
		test(t, s, l)
	})
}

// entries are those with the given numbers, in the order of their keys.
func entries(now time.Time, trace string, numbers ...int) []*intake.Entry {
	list := make([]*intake.Entry, len(numbers))
	for i, n := range numbers {
		e := event(now, fmt.Sprint(trace, n))
		e.EventID = fmt.Sprintf("evt_%04d", n)
		e.IdempotencyKey = "courier-x:" + e.EventID
		list[i] = entry(e, fmt.Sprint("hash of ", n))
	}
	return list
}

// rows counts the events that are in ledger and outbox, each with the other's id.
func rows(t *testing.T, s *store.Store) (n int) {
	t.Helper()
	var entered, appended int
	if err := s.Read.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM courier_ledger), (SELECT count(*) FROM event_outbox),
		(SELECT count(*) FROM courier_ledger l JOIN event_outbox o ON o.id = l.envelope_id)`).Scan(&entered, &appended, &n); err != nil {
		t.Fatal(err)
	}
	if entered != n || appended != n {
		t.Fatalf("%d rows in the ledger and %d in the outbox, %d of them of one event", entered, appended, n)
	}
	return n
}

// What is known keeps its trace id and its body; what is new, in the same call, is entered.
func TestReceive(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		r, now := l.Receiver(), time.Now()
		numbers := make([]int, 300) // more than a statement takes
		for i := range numbers {
			numbers[i] = i
		}
		if _, err := r.Receive(t.Context(), entries(now, "first ", 3, 150, 299)); err != nil {
			t.Fatal(err)
		}
		again := entries(now, "second ", numbers...)
		again[150].BodyHash = "another"
		receipts, err := r.Receive(t.Context(), again)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range receipts {
			want := intake.Receipt{TraceID: fmt.Sprint("second ", i), BodyHash: fmt.Sprint("hash of ", i)}
			if slices.Contains([]int{3, 150, 299}, i) {
				want.TraceID = fmt.Sprint("first ", i)
			}
			if got != want {
				t.Errorf("%d: got %+v, want %+v", i, got, want)
			}
		}
		if n := rows(t, s); n != 300 {
			t.Errorf("%d events are stored, want 300", n)
		}
	})
}

// What the database refuses takes nothing of its call with it into the database, and is not
// taken for the database's fault.
func TestReceiveRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		group := entries(time.Now(), "", 1, 2, 3)
		group[1].Row.Lane = "slow" // the outbox knows no such lane
		if _, err := l.Receiver().Receive(t.Context(), group); err == nil || errors.Is(err, intake.ErrUnavailable) {
			t.Errorf("got %v, want an error of the entries", err)
		}
		if !s.Embedded { // SQLite stores anything
			group = entries(time.Now(), "", 1, 2, 3)
			group[1].Event.EventID = "evt\x00"
			if _, err := l.Receiver().Receive(t.Context(), group); err == nil || errors.Is(err, intake.ErrUnavailable) {
				t.Errorf("got %v, want an error of the entries", err)
			}
		}
		if n := rows(t, s); n != 0 {
			t.Errorf("%d events are stored, want none", n)
		}
	})
}

// Calls with the same keys do not wait for each other for ever, and one of them is the first
// of each key.
func TestReceiveOverlapping(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *store.Store, l *ledger.Ledger) {
		const callers, keys, rounds = 4, 40, 5
		r, now := l.Receiver(), time.Now()
		var all sync.WaitGroup
		first := make([][]intake.Receipt, callers)
		for c := range callers {
			all.Go(func() {
				for round := range rounds {
					var numbers []int
					for k := range keys {
						numbers = append(numbers, round*keys+k)
					}
					got, err := r.Receive(t.Context(), entries(now, fmt.Sprint("caller ", c, ", "), numbers...))
					if err != nil {
						t.Error(err)
						return
					}
					first[c] = append(first[c], got...)
				}
			})
		}
		all.Wait()
		for c := 1; c < callers; c++ {
			if !slices.Equal(first[c], first[0]) {
				t.Errorf("caller %d has other receipts than caller 0", c)
			}
		}
		if n := rows(t, s); n != keys*rounds {
			t.Errorf("%d events are stored, want %d", n, keys*rounds)
		}
	})
}

// A database that is gone is no entry's fault.
func TestReceiveUnavailable(t *testing.T) {
	t.Parallel()
	server := testserver.PrivatePostgres(t)
	_, l := openAt(t, server.URL())
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Receiver().Receive(t.Context(), entries(time.Now(), "", 1, 2)); !errors.Is(err, intake.ErrUnavailable) {
		t.Errorf("got %v, want that the store is not available", err)
	}
}

// BenchmarkReceive stores groups of 32 distinct events, a transaction each. An op is a group.
func BenchmarkReceive(b *testing.B) {
	for name, address := range map[string]func(testing.TB) string{
		"sqlite":   func(tb testing.TB) string { return "sqlite:" + filepath.Join(tb.TempDir(), "waybill.db") },
		"postgres": testserver.PostgresURL,
	} {
		b.Run(name, func(b *testing.B) {
			_, l := openAt(b, address(b))
			r, now, numbers := l.Receiver(), time.Now(), make([]int, 32)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				for i := range numbers {
					numbers[i] = n*len(numbers) + i
				}
				group := entries(now, "trace", numbers...)
				slices.SortFunc(group, func(x, y *intake.Entry) int { return strings.Compare(x.Event.IdempotencyKey, y.Event.IdempotencyKey) })
				if _, err := r.Receive(b.Context(), group); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
