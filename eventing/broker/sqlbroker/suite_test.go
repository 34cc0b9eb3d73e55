package sqlbroker_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// TestWatermillSuite is Watermill's own.
func TestWatermillSuite(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]int{"window 1": 1, "window 64": 64} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, testserver.PostgresURL(t)+"&synchronous_commit=off") // thousands of single publishes
			db.SetMaxOpenConns(80)
			db.SetMaxIdleConns(80)
			inGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
				return newPublisher(t, db, sqlbroker.PublisherConfig{}), newSubscriber(t, db, sqlbroker.SubscriberConfig{
					Group: group, Window: window, NackDelay: time.Millisecond, CleanInterval: -1,
					CloseTimeout: 100 * time.Millisecond, // the suite leaves messages without an ack
				})
			}
			tests.TestPubSub(t, tests.Features{
				ConsumerGroups:                      true,
				ExactlyOnceDelivery:                 false,       // what is not acked is delivered again
				GuaranteedOrder:                     window == 1, // else several messages are out at a time
				GuaranteedOrderWithSingleSubscriber: window == 1,
				Persistent:                          true,
				RestartServiceCommand:               nil, // TestServerRestarts restarts one of its own
				RequireSingleInstance:               false,
				NewSubscriberReceivesOldMessages:    false, // a group goes on; a new one begins with the first: TestConsumersShareATopic
				ContextPreserved:                    false, // a message comes from the server
				// The suite's names are too long for tables.
				GenerateTopicFunc: func(tests.TestContext) string { return "t" + watermill.NewShortUUID() },
			}, func(t *testing.T) (message.Publisher, message.Subscriber) { return inGroup(t, group) }, inGroup)
		})
	}
}
