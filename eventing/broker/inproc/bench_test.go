package inproc_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

// BenchmarkPublishConsume publishes in batches to one subscription and waits for
// every completion. As many handlers as the window allows would run; one is enough,
// since it does nothing.
func BenchmarkPublishConsume(b *testing.B) {
	const batch, inFlight = 100, 1000
	for _, window := range []int{1, 64} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			broker := inproc.New(inproc.Config{Window: window})
			defer broker.Close()
			messages, err := broker.Subscribe(b.Context(), "topic")
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				for m := range messages {
					m.Ack()
				}
			}()
			completed := make(chan error, inFlight)
			done := func(_ *message.Message, err error) { completed <- err }
			payload := make([]byte, 256)
			pending := 0
			settle := func(most int) {
				for ; pending > most; pending-- {
					if err := <-completed; err != nil {
						b.Fatal(err)
					}
				}
			}

			b.ReportAllocs()
			b.ResetTimer()
			for left := b.N; left > 0; left -= batch {
				msgs := make([]*message.Message, min(left, batch))
				for i := range msgs {
					msgs[i] = message.NewMessage("id", payload)
					msgs[i].Metadata.Set("event_type", "order.created")
				}
				settle(inFlight - batch)
				pending += len(msgs)
				if err := broker.PublishWithCompletion("topic", done, msgs...); err != nil {
					b.Fatal(err)
				}
			}
			settle(0)
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}
