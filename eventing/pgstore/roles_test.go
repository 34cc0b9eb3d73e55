package pgstore_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/testserver"
)

type delivered struct{ Parcel int }

// sink takes everything.
type sink struct{}

func (sink) Publish(string, ...*message.Message) error { return nil }
func (sink) Close() error                              { return nil }

type toSink struct{}

func (toSink) Route(string) ([]eventing.Route, bool) {
	return []eventing.Route{{Consumer: "sink", Topic: "sink", Ordered: true}}, true
}

func (toSink) Consumer(string) (eventing.Route, bool) {
	return eventing.Route{Consumer: "sink", Topic: "sink", Ordered: true}, true
}

// TestRolesNeedNoMoreThanDocumented has the privileges that docs/library.md names.
func TestRolesNeedNoMoreThanDocumented(t *testing.T) {
	t.Parallel()
	url := testserver.PostgresURL(t)
	owner := as(t, url, "")
	if err := pgstore.Migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"DROP ROLE IF EXISTS waybill_test_app", "DROP ROLE IF EXISTS waybill_test_dispatcher",
		"CREATE ROLE waybill_test_app", "GRANT INSERT ON event_outbox TO waybill_test_app",
		"CREATE ROLE waybill_test_dispatcher",
		`GRANT SELECT, INSERT, UPDATE, DELETE ON event_outbox, event_deliveries, event_leases, event_lease_holders, processed_events,
			dead_letter_events, dead_letter_consumers TO waybill_test_dispatcher`,
	} {
		if _, err := owner.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, role := range []string{"waybill_test_app", "waybill_test_dispatcher"} {
			if _, err := owner.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Error(err)
			}
		}
	})
	outbox := eventing.NewOutbox(pgstore.New(as(t, url, "waybill_test_app")), eventing.OutboxConfig{})
	if err := outbox.InTx(t.Context(), func(tx pgx.Tx) error {
		return outbox.Append(t.Context(), tx, eventing.New("parcel", "p1", delivered{1}), eventing.New("parcel", "p2", delivered{2}))
	}); err != nil {
		t.Fatal(err)
	}
	d, err := eventing.NewDispatcher(pgstore.New(as(t, url, "waybill_test_dispatcher")), sink{}, toSink{},
		eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.DispatchOnce(t.Context()); err != nil || n != 2 {
		t.Errorf("dispatched %d rows: %v", n, err)
	}
}

// as returns a pool whose connections take on a role.
func as(t *testing.T, url, role string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if role != "" {
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SET ROLE "+role)
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
