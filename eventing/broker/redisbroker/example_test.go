package redisbroker_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
)

func ExamplePublisher() {
	client := redis.NewClient(&redis.Options{
		Addr:                  "127.0.0.1:6379",
		ContextTimeoutEnabled: true,
		MaxRetries:            -1,
	})
	defer client.Close()
	publisher, err := redisbroker.NewPublisher(client, redisbroker.PublisherConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer publisher.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	parcels := []*message.Message{
		message.NewMessage("parcel-1", []byte("to Oslo")),
		message.NewMessage("parcel-2", []byte("to Rome")),
	}
	parcels[0].SetContext(ctx) // the call's
	if err := publisher.Publish("parcels", parcels...); err != nil {
		fmt.Println(err) // says how many were taken: publish them all again, or the rest
	}
}

func ExampleSubscriber() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	subscriber, err := redisbroker.NewSubscriber(client, redisbroker.SubscriberConfig{Group: "porters"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscriber.Close() // gives back what is not acked
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	parcels, err := subscriber.Subscribe(ctx, "parcels")
	if err != nil {
		fmt.Println(err)
		return
	}
	for parcel := range parcels { // until ctx ends
		fmt.Println(parcel.UUID, string(parcel.Payload))
		parcel.Ack()
	}
}
