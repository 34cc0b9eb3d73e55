package eventlog_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
)

// version5 is an ID that is nobody else's UUID, but might be.
const version5 = "24e752a3-6fd5-5f7a-a8f0-c10c4eebe1ef"

// Of two events with the same UUID, the second is refused, and repeats of the first are not.
func TestRecordTellsEventsOfOneUUIDApart(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		for _, id := range []string{"e1", strings.ToUpper(aUUID), "a \"<\u2028> b"} {
			for _, pair := range [][2]string{{id, eventlog.UUID(id)}, {eventlog.UUID(id), id}} {
				b.empty(t)
				first, second := event(pair[0], "case_created", noon), event(pair[1], "case_created", noon)
				if err := b.inTx(func(tx *sql.Tx) error {
					for _, e := range []eventing.Envelope{first, second, first, second} {
						err := l.Record(ctx, tx, e, nil)
						switch refused := eventing.IsPermanent(err) && eventing.ReasonOf(err) == eventlog.ReasonNotLoggable; {
						case e.ID == first.ID && err != nil:
							t.Errorf("%q, first: %v", e.ID, err)
						case e.ID == second.ID && (!refused || !strings.Contains(err.Error(), e.ID)):
							t.Errorf("%q, after %q: got %v", e.ID, first.ID, err)
						}
					}
					return l.Record(ctx, tx, event(version5, "case_created", noon), nil)
				}); err != nil {
					t.Errorf("after refusals the transaction goes on: %v", err)
				}
				got, want := ids(b.entries(t, l, eventlog.Filter{})), []string{first.ID, version5}
				slices.Sort(got)
				if slices.Sort(want); !slices.Equal(got, want) {
					t.Errorf("the log has %q, want %q", got, want)
				}
			}
		}
	})
}

// Once the other event is gone, nothing is in the way.
func TestRecordAfterTheOtherIsPruned(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t, framework()...)
		b.record(t, l, event("e1", "synced", noon.AddDate(-1, 0, 0)))
		victim := event(eventlog.UUID("e1"), "synced", noon)
		if err := l.Record(ctx, b.db, victim, nil); !eventing.IsPermanent(err) {
			t.Errorf("while the other one is there: %v", err)
		}
		if n := b.prune(t, l, noon, 10); n != 1 {
			t.Fatalf("removed %d events, want 1", n)
		}
		b.record(t, l, victim)
		// In the worst moment, too.
		b.empty(t)
		b.record(t, l, event("e1", "synced", noon.AddDate(-1, 0, 0)))
		if err := l.Record(ctx, &spy{base: b, after: func() { b.empty(t) }}, victim, nil); err != nil {
			t.Error(err)
		}
		if got := ids(b.entries(t, l, eventlog.Filter{})); !slices.Equal(got, []string{victim.ID}) {
			t.Errorf("the log has %v, want %s", got, victim.ID)
		}
	})
}

// A row that somebody else has written may have no metadata.
func TestRecordRepeatsForeignRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		for _, metadata := range []any{nil, `{}`, `{"event_id": null}`} {
			b.empty(t)
			b.exec(t, `INSERT INTO events (event_type, event_id, aggregate_type, aggregate_id, payload, metadata) VALUES ('T', $1, 'case', $1, '{}', $2)`,
				eventlog.UUID("e1"), metadata)
			b.record(t, l, event(eventlog.UUID("e1"), "T", noon))
			if err := l.Record(ctx, b.db, event("e1", "T", noon), nil); !eventing.IsPermanent(err) {
				t.Errorf("metadata %v: got %v", metadata, err)
			}
		}
	})
}

// spy counts statements and queries.
type spy struct {
	base
	n     int
	after func() // the first statement; nil: nothing
}

func (s *spy) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := s.db.ExecContext(ctx, query, args...)
	if s.n++; s.n == 1 && s.after != nil {
		s.after()
	}
	return result, err
}

func (s *spy) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s.n++
	return s.db.QueryContext(ctx, query, args...)
}

// Only where two events could have the same UUID is there a second look.
func TestRecordRoundTrips(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		for _, c := range []struct {
			id    string
			again int
		}{{aUUID, 1}, {"e1", 2}, {version5, 2}} {
			for _, want := range []int{1, c.again} {
				s := &spy{base: b}
				if err := l.Record(ctx, s, event(c.id, "T", noon), nil); err != nil || s.n != want {
					t.Errorf("%s: %d statements, want %d (%v)", c.id, s.n, want, err)
				}
			}
		}
	})
}

// What has no QueryContext is enough on Postgres. On SQLite, doubt is an error, and no event is taken for another.
func TestRecordWithExecAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		alone := struct{ eventlog.Execer }{b.db}
		for _, id := range []string{aUUID, aUUID, "e1"} {
			if err := l.Record(ctx, alone, event(id, "T", noon), nil); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		err := l.Record(ctx, alone, event("e1", "T", noon), nil)
		if b.dialect == eventlog.Postgres && err != nil ||
			b.dialect == eventlog.SQLite && (err == nil || eventing.IsPermanent(err) || !strings.Contains(err.Error(), "QueryContext")) {
			t.Errorf("again: %v", err)
		}
	})
}

// A consumer keeps the event that was refused as a dead letter.
func TestHandleRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		b.record(t, l, event(eventlog.UUID("e1"), "case_created", noon))
		c, err := eventing.NewConsumer(b.store, func(ctx context.Context, e eventing.Envelope) error {
			tx, _ := eventing.TxFromContext[*sql.Tx](ctx)
			return l.Handle(ctx, tx, e)
		}, eventing.ConsumerConfig{
			Name: "event_log", Transactional: true, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := eventing.EnvelopeCodec{}.Marshal(event("e1", "case_created", noon))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Receive(ctx, m); err != nil {
			t.Fatal(err)
		}
		letters, err := b.store.DeadLetters(ctx, eventing.DeadLetterFilter{Limit: 10})
		if err != nil || len(letters) != 1 || letters[0].EventID != "e1" || letters[0].Reason != eventlog.ReasonNotLoggable || letters[0].AttemptCount != 1 {
			t.Errorf("the dead letters are %+v, %v", letters, err)
		}
	})
}
