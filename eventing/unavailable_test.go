package eventing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/memstore"
)

// grumbler is a broker that cannot be reached whenever a certain event is to be published.
type grumbler struct {
	*recorder
	event string
	err   error
	until time.Time
}

func (b *grumbler) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		if m.UUID == b.event && time.Now().Before(b.until) {
			return b.err
		}
	}
	return b.recorder.Publish(topic, msgs...)
}

type full struct{}

func (full) Error() string   { return "full" }
func (full) Temporary() bool { return true }

// A message that fails alone while others pass is to blame, but not soon if the error may be
// of the moment: the moments may be bad ones each time that it is its turn.
func TestErrorsOfTheMoment(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"refused": &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "reset": syscall.ECONNRESET, "cut": io.EOF, "late": context.DeadlineExceeded,
		"full": full{},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for lasting, letters := range map[time.Duration]int{30 * time.Second: 0, time.Hour: 1} {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New()
					fill(t, store, 3, keysOfOnePartition(3)...)
					broker := &grumbler{recorder: newRecorder(), event: keysOfOnePartition(1)[0] + "/0001", err: err, until: time.Now().Add(lasting)}
					d, err := eventing.NewDispatcher(store, broker, ordered{}, eventing.DispatcherConfig{Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
					defer cancel()
					var others sync.WaitGroup
					defer others.Wait()
					others.Go(func() { // pass
						for i := 0; ctx.Err() == nil; i++ {
							fill(t, store, 1, keysOfOnePartition(4 + i)[3+i])
							select {
							case <-ctx.Done():
							case <-time.After(time.Second):
							}
						}
					})
					if err := d.Run(ctx); err != nil {
						t.Fatal(err)
					}
					list, err := store.DeadLetters(context.Background(), eventing.DeadLetterFilter{Limit: 10})
					if err = errors.Join(err, ctx.Err()); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					if len(list) != letters || broker.published()[broker.event] != 1-letters {
						t.Errorf("when that lasts for %v, there are %d dead letters, and the event is published %d times", lasting, len(list), broker.published()[broker.event])
					}
				})
			}
		})
	}
}
