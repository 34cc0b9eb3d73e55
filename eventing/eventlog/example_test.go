package eventlog_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/eventlog"
	"github.com/waybill-go/waybill/eventing/sqlitestore"
	"github.com/waybill-go/waybill/router"
)

// CaseCreated is an event, and the name of its type.
type CaseCreated struct {
	Priority string `json:"priority"`
}

// openExample returns a store in a new file, with the log's table in it.
func openExample(ctx context.Context) (store *sqlitestore.Store, remove func(), err error) {
	dir, err := os.MkdirTemp("", "eventlog")
	if err != nil {
		return nil, nil, err
	}
	store, err = sqlitestore.Open(ctx, filepath.Join(dir, "app.db"))
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	_, err = eventlog.Migrations(eventlog.SQLite).Up(ctx, store.DB())
	return store, func() { _, _ = store.Close(), os.RemoveAll(dir) }, err
}

// The log as a consumer of all events.
func Example() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	broker, outbox := inproc.New(inproc.Config{}), eventing.NewOutbox(store, eventing.OutboxConfig{})
	log, err1 := eventlog.New(eventlog.Config{Dialect: eventlog.SQLite})
	r, err2 := router.New(router.Config{Store: store, Subscriber: broker})
	dispatcher, err3 := eventing.NewDispatcher(store, broker, r, eventing.DispatcherConfig{})

	consuming, stopConsuming := context.WithCancel(ctx)
	err4 := router.HandleTx(r, "event_log", func(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage]) error {
		defer stopConsuming() // one is enough for an example; else the handler is log.Handle itself
		return log.Handle(ctx, tx, e)
	}, router.On("*"))
	err5 := outbox.InTx(ctx, func(tx *sql.Tx) error {
		return outbox.Append(ctx, tx, eventing.New("case", "GA-20240115-0042", CaseCreated{"high"}))
	})
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		fmt.Println(err)
		return
	}
	dispatching, stopDispatching := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = dispatcher.Run(dispatching) })
	err = errors.Join(r.Run(consuming), broker.Close())
	stopDispatching()
	running.Wait()

	for e, readErr := range log.Each(ctx, store.Reader(), eventlog.Filter{AggregateType: "case", AggregateID: "GA-20240115-0042"}) {
		fmt.Println(e.Type, e.AggregateID, string(e.Payload), e.Status, readErr)
	}
	fmt.Println(err)
	// Output:
	// CaseCreated GA-20240115-0042 {"priority":"high"} processed <nil>
	// <nil>
}

// A handler of one's own records more than the envelope says.
func ExampleLog_Record() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	log, err := eventlog.New(eventlog.Config{Dialect: eventlog.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}
	audit := func(ctx context.Context, tx *sql.Tx, e eventing.Event[json.RawMessage]) error {
		return log.Record(ctx, tx, e, map[string]any{"actor": "case_handler/17"})
	}

	e := eventing.Envelope{Header: eventing.Header{
		ID: "event-1", Type: "CaseCreated", OccurredAt: time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC), CorrelationID: "request-1",
		SchemaVersion: 1, AggregateType: "case", AggregateID: "7",
	}, Payload: []byte(`{"priority":"high"}`)}
	err = store.InTx(ctx, func(tx *sql.Tx) error {
		return errors.Join(audit(ctx, tx, e), audit(ctx, tx, e)) // twice is once
	})
	fmt.Println("recorded:", err)

	for entry, err := range log.Each(ctx, store.Reader(), eventlog.Filter{}) {
		fmt.Println(entry.ID, entry.OccurredAt, entry.Metadata, err)
		b, err := eventing.EncodeEnvelope(entry.Envelope())
		fmt.Println(string(b), err)
	}
	// Output:
	// recorded: <nil>
	// event-1 2026-02-26 12:00:00 +0000 UTC map[actor:case_handler/17] <nil>
	// {"event_id":"event-1","event_type":"CaseCreated","occurred_at":"2026-02-26T12:00:00Z","correlation_id":"request-1","tenant_id":"","station_id":"","schema_version":1,"aggregate_type":"case","aggregate_id":"7","payload":{"priority":"high"}} <nil>
}

// Audit events are kept for seven years; those of a case for five, from its end on.
func ExampleLog_Prune() {
	ctx := context.Background()
	store, remove, err := openExample(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remove()
	log, err := eventlog.New(eventlog.Config{Dialect: eventlog.SQLite, Retention: []eventing.Retention{
		{Category: "audit", Types: []string{"login"}, Keep: eventing.Period{Years: 7}},
		{
			Category: "case", Types: []string{"case_created", "case_closed", "case_reopened"}, Keep: eventing.Period{Years: 5},
			After: []string{"case_closed"}, Unless: []string{"case_reopened"},
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	record := func(eventType, id string, year int) error {
		e := eventing.New("case", id, json.RawMessage(`{}`))
		e.ID, e.Type, e.OccurredAt, e.SchemaVersion = eventing.NewID(), eventType, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC), 1
		return log.Record(ctx, store.DB(), e, nil)
	}
	err = errors.Join(
		record("login", "7", 2016), record("login", "7", 2020),
		record("case_created", "7", 2010), record("case_closed", "7", 2012), // over for long
		record("case_created", "8", 2010), record("case_closed", "8", 2012), record("case_reopened", "8", 2013), // and alive
	)
	fmt.Println("recorded:", err)

	n, err := log.Prune(ctx, store.DB(), time.Date(2026, 2, 26, 0, 0, 0, 0, time.UTC), 1000)
	fmt.Println("removed:", n, err)
	for e, err := range log.Each(ctx, store.Reader(), eventlog.Filter{}) {
		fmt.Println(e.OccurredAt.Year(), e.Type, e.AggregateID, err)
	}
	// Output:
	// recorded: <nil>
	// removed: 3 <nil>
	// 2010 case_created 8 <nil>
	// 2012 case_closed 8 <nil>
	// 2013 case_reopened 8 <nil>
	// 2020 login 7 <nil>
}
