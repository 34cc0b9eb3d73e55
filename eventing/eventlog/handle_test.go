package eventlog_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/internal/testserver"
)

// A consumer that fails at first leaves one row, which says how often.
func TestHandle(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, b base) {
		l := b.log(t)
		now, attempts := noon, 0
		c, err := eventing.NewConsumer(b.store, func(ctx context.Context, e eventing.Envelope) error {
			tx, _ := eventing.TxFromContext[*sql.Tx](ctx)
			if err := l.Handle(ctx, tx, e); err != nil {
				return err
			}
			if attempts++; attempts < 3 {
				return errors.New("busy") // and what was recorded is rolled back
			}
			return nil
		}, eventing.ConsumerConfig{
			Name: "event_log", Transactional: true, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
			Policy: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 5, Base: time.Second}},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := eventing.EnvelopeCodec{}.Marshal(event("e1", "case_created", noon))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second is a duplicate from the broker
			if err := c.Receive(ctx, m.Copy()); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			now = now.Add(time.Hour)
			if _, err := c.RedeliverOnce(ctx); err != nil {
				t.Fatal(err)
			}
		}
		entries := b.entries(t, l, eventlog.Filter{})
		if len(entries) != 1 || entries[0].RetryCount != 2 || attempts != 3 {
			t.Errorf("after %d attempts the log has %+v", attempts, entries)
		}
	})
}

// pgxTx is how a transaction of pgx records: docs/eventlog.md shows it.
type pgxTx struct{ pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// The statements work with pgx itself, and in the modes that poolers ask for.
func TestPgxModes(t *testing.T) {
	t.Parallel()
	url := testserver.PostgresURL(t)
	db := postgres(t, url)
	b := base{dialect: eventlog.Postgres, db: db}
	b.migrate(t)
	l := b.log(t, framework()...)
	var want []string
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		conn, err := pgx.Connect(ctx, url+"&default_query_exec_mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(ctx) })
		if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for range 2 {
				if err := l.Record(ctx, pgxTx{tx}, event("pgx "+mode, "case_created", noon), map[string]any{"mode": mode}); err != nil {
					return err
				}
			}
			if err := l.Record(ctx, pgxTx{tx}, event(eventlog.UUID("pgx "+mode), "case_created", noon), nil); !eventing.IsPermanent(err) {
				t.Errorf("%s: another event with the same UUID: %v", mode, err)
			}
			return nil
		}); err != nil {
			t.Errorf("%s, pgx: %v", mode, err)
		}
		same := base{eventlog.Postgres, postgres(t, url+"&default_query_exec_mode="+mode), nil}
		closed := event("closed "+mode, "case_closed", noon.AddDate(-9, 0, 0))
		closed.AggregateID = "8"
		same.record(t, l, event("sql "+mode, "case_created", noon), event("old "+mode, "synced", noon.AddDate(-1, 0, 0)), closed)
		f := eventlog.Filter{
			Types: []string{"case_created", "synced"}, AggregateType: "case", AggregateID: "7", Since: noon.AddDate(-2, 0, 0), Until: noon.Add(time.Second),
		}
		if got := len(same.entries(t, l, f)); got != len(want)+3 {
			t.Errorf("%s: read %d entries, want %d", mode, got, len(want)+3)
		}
		if n := same.prune(t, l, noon, 10); n != 2 {
			t.Errorf("%s: removed %d events, want 2", mode, n)
		}
		want = append(want, "pgx "+mode, "sql "+mode)
	}
	got := ids(b.entries(t, l, eventlog.Filter{}))
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
}
