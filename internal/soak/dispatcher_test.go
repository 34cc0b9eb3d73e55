//go:build unix

package soak

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"syscall"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

// beforeSettle is where the time of a settlement is known, and nothing has been sent.
const beforeSettle eventing.FaultPoint = "settle: before the statement"

// dispatcher makes a dispatcher.
func (s spec) dispatcher(w *witness, publisher message.Publisher) (*eventing.Dispatcher, error) {
	return eventing.NewDispatcher(w, publisher, routes(s.Topics), eventing.DispatcherConfig{
		Holder: s.Holder, Concurrency: s.Concurrency, LeaseTTL: s.LeaseTTL, Logger: logger(),
	})
}

// witness is the store of a dispatcher or a worker, which tells what it sees and stops
// the process when it is to.
type witness struct {
	*pgstore.Store

	spec      spec
	once      sync.Once
	continued chan os.Signal
	out       sync.Mutex
}

func (w *witness) tell(r report) {
	w.out.Lock()
	defer w.out.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		slog.Error("telling failed", "error", err)
	}
}

// stopAt stops the process until somebody continues it.
func (w *witness) stopAt(p eventing.FaultPoint) (err error) {
	if w.spec.StopAt == p {
		w.once.Do(func() { err = w.stop(report{}) })
	}
	return err
}

// stop stops the process, when it has told so.
func (w *witness) stop(r report) error {
	select {
	case <-w.continued: // after an earlier stop
	default:
	}
	r.Stopping = true
	w.tell(r)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-w.continued // other threads may stop before this one
	return nil
}

func (w *witness) Settle(ctx context.Context, r eventing.SettleRequest) (int, error) {
	if err := w.stopAt(beforeSettle); err != nil {
		return 0, err
	}
	n, err := w.Store.Settle(ctx, r)
	if w.spec.TellSettled && err == nil {
		told := report{Settled: n}
		for _, row := range r.Rows {
			told.Rows = append(told.Rows, row.Seq)
		}
		w.tell(told)
	}
	return n, err
}

// The types of events, and where each goes.
const (
	parcel   = "parcel"   // the ledger
	reading  = "reading"  // the ledger and the archive
	alarm    = "alarm"    // the pager
	incident = "incident" // the pager and the ledger
	held     = "held"     // a reading that is not yet due
	damaged  = "damaged"  // a parcel that only a worker that does not know better accepts; see ledger
	retried  = "retried"  // a parcel that the ledger refuses the first time
)

// routes is the routing table; its value is what the topics' names begin with. The
// ledger is ordered, the others are not.
type routes string

func (r routes) Route(eventType string) ([]eventing.Route, bool) {
	switch eventType {
	case parcel, damaged, retried:
		return []eventing.Route{r.to("ledger")}, true
	case reading:
		return []eventing.Route{r.to("ledger"), r.to("archive")}, true
	case alarm:
		return []eventing.Route{r.to("pager")}, true
	case incident:
		return []eventing.Route{r.to("pager"), r.to("ledger")}, true
	}
	return nil, false
}

func (r routes) Consumer(name string) (eventing.Route, bool) { return r.to(name), true }

func (r routes) to(consumer string) eventing.Route {
	return eventing.Route{Consumer: consumer, Topic: string(r) + consumer, Ordered: consumer == "ledger"}
}
