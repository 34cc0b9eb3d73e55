package gateway

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// thing is the payload of the trio's events.
type thing struct{ Name string }

var errBroken = errors.New("broken for good")

// trio is a running system of three consumers on a gateway's store, with a database
// shell beside it.
type trio struct {
	*testing.T
	address string
	store   *store.Store
	broker  *broker
	router  *router.Router
	outbox  *eventing.Outbox[*sql.Tx]
	shell   func(script string) (output string, err error)

	mu     sync.Mutex
	broken map[string]bool // consumers
	calls  []string        // "consumer event"; one that failed, too
}

var trioConsumers = []string{"billing", "mail", "stock"}

// newTrio returns a system whose consumers run and whose dispatcher does not yet.
func newTrio(t *testing.T, address, brokerURL string) *trio {
	t.Helper()
	x := &trio{T: t, address: address, store: storetest.Open(t, address), broker: openBroker(t, brokerURL), broken: map[string]bool{}}
	x.shell = shellOf(t, address)
	if _, err := x.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.exec(`CREATE TABLE effects (consumer text NOT NULL, event_id text NOT NULL)`) // append-only, and nothing in it is unique
	x.outbox = eventing.NewOutbox(x.store.Events, eventing.OutboxConfig{})
	var err error
	x.router, err = router.New(router.Config{Store: x.store.Events, Subscriber: x.broker.subscriber, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range trioConsumers {
		if err := router.HandleTx(x.router, name, func(ctx context.Context, tx *sql.Tx, e eventing.Event[thing]) error {
			return x.handle(ctx, tx, name, e.ID)
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.router.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

// handle does its effect and then fails, if it is to: what it did must not stay.
func (x *trio) handle(ctx context.Context, tx *sql.Tx, consumer, id string) error {
	x.mu.Lock()
	broken := x.broken[consumer]
	x.calls = append(x.calls, consumer+" "+id)
	x.mu.Unlock()
	if _, err := tx.ExecContext(ctx, `INSERT INTO effects (consumer, event_id) VALUES ($1, $2)`, consumer, id); err != nil {
		return err
	}
	if broken {
		return eventing.Permanent(errBroken)
	}
	return nil
}

// dispatch runs a dispatcher until it is stopped, or the test ends.
func (x *trio) dispatch(s *store.Store, holder string) (stop func()) {
	x.Helper()
	d, err := eventing.NewDispatcher(s.Events, x.broker.publisher, x.router, eventing.DispatcherConfig{Holder: holder, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		x.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.Run(ctx) // logs its errors
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	x.Cleanup(stop)
	return stop
}

// breaks makes these consumers fail for good, and no others.
func (x *trio) breaks(consumers ...string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.broken)
	for _, c := range consumers {
		x.broken[c] = true
	}
}

// append appends events, in one transaction.
func (x *trio) append(ids ...string) {
	x.Helper()
	var events []eventing.Appendable
	for _, id := range ids {
		e := eventing.New("thing", id, thing{id})
		e.ID = id
		events = append(events, e)
	}
	if err := x.outbox.InTx(x.Context(), func(tx *sql.Tx) error { return x.outbox.Append(x.Context(), tx, events...) }); err != nil {
		x.Fatal(err)
	}
}

func (x *trio) exec(statement string) {
	x.Helper()
	if err := x.store.Events.InTx(x.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(x.Context(), statement)
		return err
	}); err != nil {
		x.Fatal(err)
	}
}

// script runs statements in the shell, which must accept them.
func (x *trio) script(statements string) {
	x.Helper()
	if out, err := x.shell(statements); err != nil {
		x.Fatalf("%v: %s\n%s", err, out, statements)
	}
}

// texts returns the only column of a query, which must succeed.
func (x *trio) texts(query string, args ...any) []string {
	x.Helper()
	all, err := texts(x.Context(), x.store.Read, query, args...)
	if err != nil {
		x.Fatal(err)
	}
	return all
}

// count is how often each consumer was called with an event, or had an effect.
type count map[string]int

func (x *trio) called(id string) count {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := count{}
	for _, call := range x.calls {
		if consumer, of, _ := strings.Cut(call, " "); of == id {
			n[consumer]++
		}
	}
	return n
}

func (x *trio) effects(id string) count {
	x.Helper()
	n := count{}
	for _, consumer := range x.texts(`SELECT consumer FROM effects WHERE event_id = $1`, id) {
		n[consumer]++
	}
	return n
}

// open returns the consumers with an open dead letter of an event that is not on
// its way to them.
func (x *trio) open(id string) []string {
	x.Helper()
	return x.texts(`SELECT consumer_name FROM dead_letter_consumers WHERE event_id = $1 AND status IN ('pending', 'reviewed') ORDER BY consumer_name`, id)
}

// is returns an error until an event's calls, effects and open dead letters are as
// wanted, and none of its rows is pending.
func (x *trio) is(id string, calls, effects count, open ...string) error {
	x.Helper()
	gotCalls, gotEffects, gotOpen := x.called(id), x.effects(id), x.open(id)
	pending := x.texts(`SELECT id FROM event_outbox WHERE event_id = $1 AND status = 'pending'`, id)
	if !equal(gotCalls, calls) || !equal(gotEffects, effects) || !slices.Equal(gotOpen, open) || len(pending) > 0 {
		return fmt.Errorf("%s: calls %v, want %v; effects %v, want %v; open dead letters %v, want %v; pending %v",
			id, gotCalls, calls, gotEffects, effects, gotOpen, open, pending)
	}
	return nil
}

func equal(a, b count) bool { return fmt.Sprint(a) == fmt.Sprint(b) } // maps are printed in the order of their keys

// shellOf returns what runs a script in the shell of an address's database.
func shellOf(t *testing.T, address string) func(script string) (output string, err error) {
	t.Helper()
	var command []string
	if file, ok := strings.CutPrefix(address, "sqlite:"); ok {
		command = []string{testserver.Tool(t, "sqlite3"), "-bail", "-cmd", ".timeout 10000", file}
	} else {
		command = []string{testserver.Tool(t, "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", address}
	}
	return func(script string) (string, error) {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Stdin = strings.NewReader(script)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}
