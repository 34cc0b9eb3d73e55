// Command nats has orders invoiced and tracked over NATS JetStream, a broker that
// Waybill has no code for: it needs watermill-nats' publisher and subscriber, and
// streams and consumers that are set up for them, in jetstream.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"
)

func main() {
	url := flag.String("url", "", "NATS server with JetStream; none: one inside this process")
	orders := flag.Int("orders", 5, "how many orders to place")
	flag.Parse()
	dir, err := os.MkdirTemp("", "waybill-nats")
	if err == nil {
		err = errors.Join(demo(context.Background(), os.Stdout, *url, dir, *orders), os.RemoveAll(dir))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// demo places orders and waits for what becomes of them.
func demo(ctx context.Context, out io.Writer, url, dir string, orders int) error {
	if url == "" {
		server, err := startServer(filepath.Join(dir, "jetstream"), 0)
		if err != nil {
			return err
		}
		defer stopServer(server)
		url = server.ClientURL()
	}
	s, err := open(ctx, url, filepath.Join(dir, "shop.db"), "")
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var ended error
	var shop sync.WaitGroup
	shop.Go(func() { ended = s.run(running) })
	err = s.placeAndWait(ctx, out, orders)
	stop()
	shop.Wait()
	return errors.Join(err, ended, s.close())
}

func (s *shop) placeAndWait(ctx context.Context, out io.Writer, orders int) error {
	for i := range orders {
		if err := s.place(ctx, fmt.Sprintf("order-%d", i+1)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		done, err := s.effects(ctx)
		if err != nil {
			return err
		}
		if len(done) == orders*(1+len(statuses)) {
			for _, line := range done {
				_, _ = fmt.Fprintln(out, line)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("of %d orders, only this was done: %q: %w", orders, done, ctx.Err())
		case <-look.C:
		}
	}
}
