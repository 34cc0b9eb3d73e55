package sqlbroker_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
)

func ExamplePublisher() {
	db, err := sql.Open("pgx", "postgres://waybill@127.0.0.1:5432/waybill")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	publisher, err := sqlbroker.NewPublisher(db, sqlbroker.PublisherConfig{})
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
		fmt.Println(err) // says whether both may have been taken, or none: publish them again
	}
}

func ExampleSubscriber() {
	db, err := sql.Open("pgx", "postgres://waybill@127.0.0.1:5432/waybill")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	subscriber, err := sqlbroker.NewSubscriber(db, sqlbroker.SubscriberConfig{Group: "porters"})
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
