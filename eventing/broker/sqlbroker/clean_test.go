package sqlbroker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// A group that comes while old messages are being deleted finds what is left then, but for
// what one statement deletes.
func TestCleanUpSeesNewGroups(t *testing.T) {
	t.Parallel()
	db := open(t, testserver.PostgresURL(t))
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	const all = 50_000
	for from := 0; from < all; from += 5000 {
		publish(t, p, numbered(from, from+5000)...)
	}
	initialized := func(group string) *sqlbroker.Subscriber {
		t.Helper()
		s := newSubscriber(t, db, sqlbroker.SubscriberConfig{Group: group, CleanInterval: -1})
		if err := s.SubscribeInitialize(topic); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := initialized(group)
	exec(t, db, `UPDATE watermill_offsets_orders SET (last_processed_transaction_id, offset_acked) =
		(SELECT transaction_id, "offset" FROM watermill_orders ORDER BY 1 DESC, 2 DESC LIMIT 1)`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := s.Subscribe(ctx, "another"); err != nil { // for it to connect
		t.Fatal(err)
	}
	cleaned := make(chan error, 1)
	go func() {
		for tries := 1; ; tries++ {
			if err := s.Clean(topic); err == nil || tries == 1000 {
				cleaned <- err
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	left := func() int64 { return number(t, db, `SELECT count(*) FROM watermill_orders`) }
	testkit.Eventually(t, time.Minute, func() error {
		if left() == all {
			return errors.New("nothing has been deleted")
		}
		return nil
	})
	initialized("latecomer")
	then := left()
	if err := <-cleaned; err != nil {
		t.Fatal(err)
	}
	if now := left(); now < then-1000 {
		t.Errorf("%d messages were left when the group came, and %d are", then, now)
	}
}
