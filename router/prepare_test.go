package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/broker/inproc"
	"github.com/waybill-go/waybill/eventing/memstore"
	"github.com/waybill-go/waybill/router"
)

// lookedUp prepares what a lookup would.
func lookedUp(ctx context.Context, e eventing.Envelope) (any, error) {
	a, _ := eventing.AttemptFromContext(ctx)
	return fmt.Sprintf("%s at attempt %d", e.ID, a.Number), nil
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := false
		p := launch(t, options{}, func(p *process) error {
			if err := p.router.AddConsumer(router.Consumer{Name: "billing", Prepare: lookedUp}); err != nil {
				return err
			}
			return router.HandleTx(p.router, "billing", func(ctx context.Context, tx *memstore.Tx, _ eventing.Event[orderPlaced]) error {
				if effect(tx, fmt.Sprint(eventing.Prepared(ctx))); !failed {
					failed = true
					return errBusy
				}
				return nil
			})
		})
		defer p.stop()
		p.append(order("1", "e1"))
		after(time.Minute)
		p.did("the handler gets what was prepared for its attempt", "e1 at attempt 2")
	})
}

func TestPrepareWithoutAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := inproc.New(inproc.Config{})
		cfg := poison(broker)
		cfg.Subscriber = broker
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.AddConsumer(router.Consumer{Name: "mail", Prepare: lookedUp}); err != nil {
			t.Fatal(err)
		}
		handled := make(chan any, 1)
		if err := router.Handle(r, "mail", func(ctx context.Context, _ eventing.Event[orderPlaced]) error {
			handled <- eventing.Prepared(ctx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		stopped := make(chan error)
		go func() { stopped <- r.Run(ctx) }()
		sendPlaced(t, broker, "mail", "e1", `"7"`)
		if got := <-handled; got != "e1 at attempt 1" {
			t.Errorf("the handler gets %v", got)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPrepareIsNotForBatches(t *testing.T) {
	t.Parallel()
	broker := inproc.New(inproc.Config{})
	defer broker.Close()
	r, err := router.New(router.Config{Store: memstore.New(), Subscriber: broker})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AddConsumer(router.Consumer{Name: "billing", Prepare: lookedUp}); err != nil {
		t.Fatal(err)
	}
	if err := router.HandleBatchTx(r, "billing", func(context.Context, *memstore.Tx, []eventing.Event[orderPlaced]) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "consumer billing: Prepare is for handlers of one event at a time") {
		t.Errorf("it is refused: %v", err)
	}
}
