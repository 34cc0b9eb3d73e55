package inproc_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/inproc"
)

func ExampleBroker_PublishWithCompletion() {
	broker := inproc.New(inproc.Config{})
	defer broker.Close()

	// The publisher does not wait; it is told.
	completed := make(chan string, 1)
	done := func(m *message.Message, err error) { completed <- fmt.Sprintf("%s done, error: %v", m.UUID, err) }
	if err := broker.PublishWithCompletion("parcels", done, message.NewMessage("parcel-1", nil)); err != nil {
		fmt.Println(err)
		return
	}

	parcels, err := broker.Subscribe(context.Background(), "parcels")
	if err != nil {
		fmt.Println(err)
		return
	}
	m := <-parcels
	fmt.Println(m.UUID, "received")
	m.Ack()
	fmt.Println(<-completed)
	// Output:
	// parcel-1 received
	// parcel-1 done, error: <nil>
}
