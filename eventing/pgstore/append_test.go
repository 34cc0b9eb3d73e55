package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// Many rows are stored as one by one, whatever they have, in each of pgx's modes.
func TestAppendMany(t *testing.T) {
	t.Parallel()
	d := take(t)
	const stored = `SELECT concat_ws(', ', id, event_id, event_type, payload, coalesce(ordering_key, 'no key'), partition,
		created_at AT TIME ZONE 'UTC', due_at AT TIME ZONE 'UTC', consumer_name, generation, lane, status) FROM event_outbox ORDER BY seq`
	plain := func(n int) eventing.OutboxRow {
		r := row(fmt.Sprint("e", n), "")
		r.EventType, r.Partition, r.CreatedAt = fmt.Sprint("type ", n), n, noon.Add(time.Duration(n)*time.Second)
		r.Payload = fmt.Appendf(nil, `{"n":%d,"text":"\"{}',\\x41é"}`, n)
		if n%2 == 0 {
			r.OrderingKey = fmt.Sprint("{key}, ", n)
		}
		return r
	}
	special := func(n int, edit func(*eventing.OutboxRow)) eventing.OutboxRow {
		r := plain(n)
		edit(&r)
		return r
	}
	for name, rows := range map[string][]eventing.OutboxRow{
		"plain": {plain(1), plain(2), plain(3)},
		"special": {
			plain(1), special(2, func(r *eventing.OutboxRow) { r.DueAt = noon.Add(time.Hour) }), special(3, func(r *eventing.OutboxRow) { r.Lane = eventing.Critical }),
			special(4, func(r *eventing.OutboxRow) { r.ID, r.Consumer, r.Generation = "replay", "billing", 2 }), plain(5),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, mode := range modes {
				store := pgstore.New(otherPool(t, d, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
				for _, together := range []bool{false, true} {
					if err := store.InTx(t.Context(), func(tx pgx.Tx) error {
						if together {
							return store.AppendRows(t.Context(), tx, rows)
						}
						for i := range rows {
							if err := store.AppendRows(t.Context(), tx, rows[i:i+1]); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						t.Fatal(mode, together, err)
					}
					got := textsOf(t, d.pool, stored)
					if want == nil {
						want = got
					}
					if len(got) != len(rows) || !slices.Equal(got, want) {
						t.Errorf("%v, together %v:\ngot  %q\nwant %q", mode, together, got, want)
					}
					if _, err := d.pool.Exec(t.Context(), `DELETE FROM event_outbox`); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
