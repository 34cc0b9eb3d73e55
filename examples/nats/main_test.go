package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
)

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // that the broker is gone, or a lease, is told again and again
	goleak.VerifyTestMain(m)
}

const patience = 2 * time.Minute

func TestDemo(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := demo(t.Context(), &out, "", t.TempDir(), 1); err != nil {
		t.Fatal(err)
	}
	want := "order-1: billing: invoiced\norder-1: tracking: placed\norder-1: tracking: packed\norder-1: tracking: shipped\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", &out, want)
	}
}

// broker is a NATS server that can be stopped and started again at its address.
type broker struct {
	t    *testing.T
	dir  string
	url  string
	port int
	up   *server.Server
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	b := &broker{t: t, dir: t.TempDir()}
	b.start()
	t.Cleanup(func() { stopServer(b.up) })
	b.url = b.up.ClientURL()
	return b
}

func (b *broker) start() {
	b.t.Helper()
	var err error
	if b.up, err = startServer(b.dir, b.port); err != nil {
		b.t.Fatal(err)
	}
	b.port = b.up.Addr().(*net.TCPAddr).Port
}

// forget starts the server again without anything it had.
func (b *broker) forget() {
	b.t.Helper()
	stopServer(b.up)
	b.dir = b.t.TempDir()
	b.start()
}

// start opens a process and runs it; stop ends it, with whatever it has in hand.
func start(t *testing.T, b *broker, file, name string) (s *shop, stop func()) {
	t.Helper()
	s, err := open(t.Context(), b.url, file, name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

func place(t *testing.T, s *shop, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.place(t.Context(), fmt.Sprintf("order-%03d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// wait looks until there are at least n effects.
func wait(t *testing.T, s *shop, n int) (effects []string) {
	t.Helper()
	testkit.Eventually(t, patience, func() (err error) {
		if effects, err = s.effects(t.Context()); err == nil && len(effects) < n {
			err = fmt.Errorf("there are %d effects of %d", len(effects), n)
		}
		return err
	})
	return effects
}

// check wants each effect of all orders once, those of an order in their order.
func check(t *testing.T, s *shop, orders int) {
	t.Helper()
	var want []string
	for i := 1; i <= orders; i++ {
		order := fmt.Sprintf("order-%03d: ", i)
		want = append(want, order+billing+": invoiced")
		for _, status := range statuses {
			want = append(want, order+tracking+": "+status)
		}
	}
	if got := wait(t, s, len(want)); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is in hand when a subscription ends comes again, and so does what was published
// before under the same ID.
func TestUnackedComesAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	conn, pub, sub, err := connect(b.url)
	if err == nil {
		t.Cleanup(conn.Close)
		err = provision(t.Context(), conn)
	}
	if err != nil {
		t.Fatal(err)
	}
	publish := func() {
		if err := pub.Publish(billing, message.NewMessage("1", message.Payload("{}"))); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(ack bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		in, err := sub.Subscribe(ctx, billing)
		if err != nil {
			t.Fatal(err)
		}
		m := <-in
		if m == nil {
			t.Fatal("no message came")
		}
		if ack {
			m.Ack()
			<-m.Context().Done() // the server has it
		}
		cancel()
		for range in {
		}
	}
	publish()
	receive(false)
	receive(true)
	publish()
	receive(true)
}

// The server restarts, with orders placed meanwhile; one process joins, and the other leaves.
func TestRestart(t *testing.T) {
	t.Parallel()
	b, file := newBroker(t), filepath.Join(t.TempDir(), "shop.db")
	first, stopFirst := start(t, b, file, "first")
	place(t, first, 1, 20)
	wait(t, first, 10)
	stopServer(b.up)
	place(t, first, 21, 30)
	b.start()
	second, _ := start(t, b, file, "second")
	place(t, second, 31, 50)
	wait(t, second, 120)
	stopFirst()
	place(t, second, 51, 60)
	check(t, second, 60)
}

// The server loses all that it has acked, and streams and consumers too: Requeue sends it
// again, and subscriptions that lasted go on when there is something to subscribe to.
func TestServerForgets(t *testing.T) {
	t.Parallel()
	b, file := newBroker(t), filepath.Join(t.TempDir(), "shop.db")
	idle, err := open(t.Context(), b.url, file, "idle")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	place(t, idle, 1, 10)
	testkit.Eventually(t, patience, func() error {
		if n, err := idle.dispatcher.DispatchOnce(t.Context()); err != nil || n > 0 {
			return fmt.Errorf("dispatched %d: %w", n, err)
		}
		return nil
	})
	if err := idle.close(); err != nil {
		t.Fatal(err)
	}
	b.forget()
	s, _ := start(t, b, file, "shop")
	place(t, s, 11, 11)
	wait(t, s, 4)
	done, err := eventing.Requeue(t.Context(), s.store, eventing.RequeueFilter{SentFrom: began.Add(-time.Second)}, false)
	if err != nil || done.Rows < 30 {
		t.Fatalf("requeued %+v: %v", done, err)
	}
	check(t, s, 11)

	b.forget()
	place(t, s, 12, 15)
	if err := provision(t.Context(), s.conn); err != nil {
		t.Fatal(err)
	}
	check(t, s, 15)
}
