//go:build unix

package soak

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
)

// runPoisonable is a process that dispatches and works, on a store of either kind. Its
// ledger refuses a damaged parcel until that is repaired, twice at most, the second time
// an hour later.
func (s spec) runPoisonable(ctx context.Context) error {
	d, err := openDatabase(ctx, s.Store)
	if err != nil {
		return err
	}
	b, err := s.connect()
	if err != nil {
		return errors.Join(err, d.close())
	}
	err = s.servePoisonable(ctx, d, b)
	b.close()
	return errors.Join(err, d.close())
}

func (s spec) servePoisonable(ctx context.Context, d database, b connection) error {
	r, err := s.poisonableWorker(d.store, b.Subscriber)
	if err != nil {
		return err
	}
	dispatcher, err := eventing.NewDispatcher(d.store, b.Publisher, routes(s.Topics), eventing.DispatcherConfig{
		Holder: s.Holder, LeaseTTL: s.LeaseTTL, PollInterval: 200 * time.Millisecond, Logger: logger(),
	})
	if err != nil {
		return err
	}
	(&witness{spec: s}).tell(report{Serving: true})
	return together(ctx, []func(context.Context) error{r.Run, dispatcher.Run})
}

func (s spec) poisonableWorker(store eventing.ConsumerStore, subscriber message.Subscriber) (*router.Router, error) {
	r, err := router.New(router.Config{
		Store: store, Subscriber: subscriber, Holder: s.Holder, LeaseTTL: s.LeaseTTL, CloseTimeout: 5 * time.Second, Logger: logger(),
	})
	if err != nil {
		return nil, err
	}
	err = r.AddConsumer(router.Consumer{
		Name: "ledger", Topic: s.Topics + "ledger",
		Policy: eventing.Policy{Ordered: true, Concurrency: eventing.Partitions, Retry: eventing.RetryPolicy{MaxAttempts: 2, Base: time.Hour}},
	})
	return r, errors.Join(err, router.HandleTx(r, "ledger", s.handlePoisonable, router.On("*")))
}

// poisonableTables is what the handler looks at, and a history of all deliveries that ever
// were in trouble, which nothing that a process does, or dies of, gets past.
var poisonableTables = map[string][]string{
	sqliteFile: {repairs, troubles, `
CREATE TRIGGER trouble AFTER INSERT ON event_deliveries BEGIN
	INSERT INTO troubles (event_id, key, state) VALUES (NEW.event_id, NEW.ordering_key, NEW.state);
END`},
	postgres: {repairs, troubles, `
CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO troubles (event_id, key, state) VALUES (NEW.event_id, NEW.ordering_key, NEW.state);
	RETURN NULL;
END $$`, `CREATE TRIGGER trouble AFTER INSERT ON event_deliveries FOR EACH ROW EXECUTE FUNCTION trouble()`},
}

const (
	repairs  = `CREATE TABLE repaired (event_id text PRIMARY KEY)`
	troubles = `CREATE TABLE troubles (event_id text NOT NULL, key text NOT NULL, state text NOT NULL)`
)

// handlePoisonable refuses what is damaged and not repaired.
func (s spec) handlePoisonable(ctx context.Context, tx *sql.Tx, e eventing.Event[note]) error {
	if e.Type == damaged {
		var repaired bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM repaired WHERE event_id = $1)`, e.ID).Scan(&repaired); err != nil {
			return err
		}
		if !repaired {
			return errDamaged
		}
	}
	return s.takePlace(ctx, tx, e)
}
