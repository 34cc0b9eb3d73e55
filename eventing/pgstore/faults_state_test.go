package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/sqltest"
)

// tables with the column that orders their rows, if there is one. What the database
// numbers is compared by its order only. Rows that refer to others come after them.
var tables = []struct{ name, order string }{
	{"event_outbox", "seq"}, {"processed_events", ""}, {"event_deliveries", "position"}, {"dead_letter_events", ""},
	{"dead_letter_consumers", ""}, {"event_leases", ""}, {"event_lease_holders", ""}, {"effects", "seq"},
}

// keep makes the tables that a state is kept in, to begin from it again and again, and
// the constraint by which a commit fails.
func keep() string {
	var b strings.Builder
	b.WriteString(`CREATE SCHEMA IF NOT EXISTS kept;
CREATE TABLE IF NOT EXISTS kept.refused (code text);
CREATE OR REPLACE FUNCTION kept.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'injected' USING ERRCODE = NEW.code; END $$;
DROP TRIGGER IF EXISTS refuse ON kept.refused;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON kept.refused DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION kept.refuse();
`)
	for _, t := range tables {
		fmt.Fprintf(&b, "CREATE UNLOGGED TABLE IF NOT EXISTS kept.%[1]s (LIKE %[1]s);\n", t.name)
	}
	return b.String()
}

// copyAll makes tables the same as others.
func copyAll(from, to string) string {
	var b strings.Builder
	for _, t := range slices.Backward(tables) {
		fmt.Fprintf(&b, "DELETE FROM %s.%s;\n", to, t.name)
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "INSERT INTO %s.%s OVERRIDING SYSTEM VALUE SELECT * FROM %s.%s;\n", to, t.name, from, t.name)
	}
	return b.String()
}

// dump is the contents of all tables.
var dump = func() string {
	var parts []string
	for i, t := range tables {
		row, order := "to_jsonb(t)", "to_jsonb(t)::text"
		if t.order != "" {
			row, order = fmt.Sprintf("to_jsonb(t) - '%s'", t.order), "t."+t.order
		}
		parts = append(parts, fmt.Sprintf("SELECT %d AS place, row_number() OVER (ORDER BY %s) AS n, '%s ' || (%s)::text AS line FROM %s t", i, order, t.name, row, t.name))
	}
	return "SELECT line FROM (" + strings.Join(parts, " UNION ALL ") + ") lines ORDER BY place, n"
}()

// rig is a database whose statements can be made to fail.
type rig[Tx any] struct {
	faulty *faulty
	plain  *pgxpool.Pool // without faults
	// open returns a store, as new: with what a store remembers forgotten.
	open func() sqltest.Database[Tx]
	// begin is how many round trips begin a transaction of the store's own, begun one of a handler.
	begin, begun int
}

// inHaste: nobody pulls the plug.
var inHaste = map[string]string{"synchronous_commit": "off"}

// newFaulty returns the faults of a database, and how to connect so that they happen.
func newFaulty(t *testing.T, d database, settings map[string]string) (f *faulty, config *pgxpool.Config) {
	t.Helper()
	if _, err := d.pool.Exec(t.Context(), keep()); err != nil {
		t.Fatal(err)
	}
	f = &faulty{admin: d.pool}
	config = d.pool.Config().Copy()
	config.ConnConfig.Tracer = f
	config.ConnConfig.DialFunc = over(config.ConnConfig.DialFunc)
	maps.Copy(config.ConnConfig.RuntimeParams, settings)
	return f, config
}

func newRig(t *testing.T, d database, settings map[string]string) rig[pgx.Tx] {
	t.Helper()
	f, config := newFaulty(t, d, settings)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return rig[pgx.Tx]{f, d.pool, func() sqltest.Database[pgx.Tx] {
		return sqltest.Database[pgx.Tx]{Store: pgstore.New(pool), DB: d.db, InsertIn: insertEffect, Order: "seq"}
	}, 0, 0}
}

func newSQLRig(t *testing.T, d database, settings map[string]string) rig[*sql.Tx] {
	t.Helper()
	f, config := newFaulty(t, d, settings)
	db := stdlib.OpenDB(*config.ConnConfig)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig[*sql.Tx]{f, d.pool, func() sqltest.Database[*sql.Tx] {
		return sqltest.Database[*sql.Tx]{Store: pgstore.NewSQL(db), DB: d.db, InsertIn: insertSQLEffect, Order: "seq"}
	}, 2, 1}
}

func insertEffect(ctx context.Context, tx pgx.Tx, consumer, eventID string) error {
	_, err := tx.Exec(ctx, sqltest.InsertEffect, consumer, eventID)
	return err
}

func insertSQLEffect(ctx context.Context, tx *sql.Tx, consumer, eventID string) error {
	_, err := tx.ExecContext(ctx, sqltest.InsertEffect, consumer, eventID)
	return err
}

func (w work[Tx]) state() []string {
	w.Helper()
	rows, err := w.plain.Query(w.background(), dump)
	w.must(err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	return lines
}

// diff is what two states differ in.
func diff(got, want []string) string {
	var b strings.Builder
	for _, l := range want {
		if !slices.Contains(got, l) {
			b.WriteString("\n  - " + l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			b.WriteString("\n  + " + l)
		}
	}
	if b.Len() == 0 && !slices.Equal(got, want) {
		return "\n  the order of the rows"
	}
	return b.String()
}

// work is what an operation works with.
type work[Tx any] struct {
	*testing.T
	db    sqltest.Database[Tx]
	plain *pgxpool.Pool
	rows  []eventing.OutboxRow // what a dispatcher has claimed in the state that was prepared
}

var (
	noon  = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	later = noon.Add(24 * time.Hour)
)

func (w work[Tx]) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// exec runs what no call of a store does.
func (w work[Tx]) exec(statements string) {
	w.Helper()
	if _, err := w.plain.Exec(w.background(), statements); err != nil {
		w.Fatal(err)
	}
}

func (w work[Tx]) background() context.Context { return context.WithoutCancel(w.Context()) }

func envelope(id, key string) []byte {
	return fmt.Appendf(nil, `{"event_id":%q,"event_type":"order.placed","occurred_at":"2026-01-02T03:04:05Z","correlation_id":%q,`+
		`"tenant_id":"","station_id":"","schema_version":1,"ordering_key":%q,"payload":{}}`, id, id, key)
}

func row(id, key string) eventing.OutboxRow {
	return eventing.OutboxRow{
		ID: id, EventID: id, EventType: "order.placed", Payload: envelope(id, key), OrderingKey: key,
		Partition: eventing.PartitionOf(key, id), CreatedAt: noon,
	}
}

// append appends rows and returns them as they are claimed.
func (w work[Tx]) append(rows ...eventing.OutboxRow) []eventing.OutboxRow {
	w.Helper()
	w.must(w.db.InTx(w.background(), func(tx Tx) error { return w.db.AppendRows(w.background(), tx, rows) }))
	return w.claimed()
}

func (w work[Tx]) claimed() []eventing.OutboxRow {
	w.Helper()
	c, err := w.db.Claim(w.background(), claimAll())
	w.must(err)
	return c.Rows
}

func claimAll() eventing.ClaimRequest {
	r := eventing.ClaimRequest{Now: noon, Critical: 10, Unadopted: true}
	for p := range eventing.Partitions {
		r.Partitions = append(r.Partitions, eventing.PartitionClaim{Partition: p, Limit: 10})
	}
	return r
}

// lease leases all partitions of a scope to "me".
func (w work[Tx]) lease(scope string) {
	w.Helper()
	_, err := w.db.AcquireLeases(w.background(), leaseRequest(scope, "me"))
	w.must(err)
}

func leaseRequest(scope, holder string) eventing.LeaseRequest {
	return eventing.LeaseRequest{Scope: scope, Holder: holder, Now: noon, Until: noon.Add(time.Minute)}
}

// delivery is of an ordered consumer if it has a key.
func delivery(consumer, id, key string) eventing.Delivery {
	return eventing.Delivery{
		Consumer: consumer, EventID: id, EventType: "order.placed", OrderingKey: key, Partition: eventing.PartitionOf(key, id),
		OutboxSeq: 1, Payload: envelope(id, key),
	}
}

// arrive returns the run of a delivery, under the first lease if it has a key.
func (w work[Tx]) arrive(d eventing.Delivery) eventing.Run {
	w.Helper()
	_, run, err := w.db.Arrive(w.background(), d, leaseOf(d), noon)
	w.must(err)
	return run
}

func leaseOf(d eventing.Delivery) *eventing.Lease {
	if d.OrderingKey == "" {
		return nil
	}
	return &eventing.Lease{Scope: "consumer/" + d.Consumer, Partition: d.Partition, Holder: "me", Token: 1, Until: noon.Add(time.Minute)}
}

func failure(r eventing.Run, state eventing.State) eventing.Failure {
	return eventing.Failure{
		Run: r, Now: noon, State: state, DueAt: noon.Add(time.Hour), Attempts: r.Attempts + 1,
		History: append(slices.Clone(r.History), eventing.Attempt{
			Attempt: r.Attempts + 1, At: noon, Outcome: "failed", ErrorCode: eventing.ReasonRejected, ErrorMessage: "no",
		}),
		Stage: eventing.StageHandle, Reason: eventing.ReasonRejected, Message: "no", DeadLetterUntil: later,
	}
}

// fail has deliveries fail, in their order.
func (w work[Tx]) fail(state eventing.State, deliveries ...eventing.Delivery) {
	w.Helper()
	for _, d := range deliveries {
		w.must(w.db.Fail(w.background(), failure(w.arrive(d), state)))
	}
}

// replayed has a delivery die and be replayed; the delivery of the replay is returned.
func (w work[Tx]) replayed(d eventing.Delivery) eventing.Delivery {
	w.Helper()
	w.fail(eventing.StateDead, d)
	w.must(w.db.Replay(w.background(), eventing.Target{EventID: d.EventID, Consumer: d.Consumer}, eventing.AnyGeneration, act("replayed")))
	d.Generation, d.OutboxSeq = 1, 2
	return d
}

func act(what string) eventing.Act { return eventing.Act{Act: what, By: "ann", At: noon, Note: "why"} }

func (w work[Tx]) success(r eventing.Run) eventing.Success {
	effect := func(consumer string) func(ctx context.Context, tx any) error {
		return func(ctx context.Context, tx any) error {
			typed, ok := tx.(Tx)
			if !ok {
				return fmt.Errorf("the store hands out a transaction of type %T", tx)
			}
			return w.db.Effect(ctx, typed, consumer, r.EventID)
		}
	}
	return eventing.Success{Run: r, Now: noon, InboxUntil: later, DeadLetterUntil: later, Effect: effect(r.Consumer), Finish: effect("finish")}
}

func (w work[Tx]) hookless(r eventing.Run) eventing.Success {
	s := w.success(r)
	s.Finish = nil
	return s
}
