package redisbroker_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/redisbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// BenchmarkPublish sends batches of 1,000 messages of 600 bytes with 9 metadata entries, as
// a dispatcher does, from one goroutine.
func BenchmarkPublish(b *testing.B) {
	client := newClient(b, testserver.RedisURL(b))
	publisher := newPublisher(b, client, redisbroker.PublisherConfig{})
	msgs := make([]*message.Message, 1000)
	for i := range msgs {
		msgs[i] = message.NewMessage(fmt.Sprintf("0197c1a2-7e3b-7c4d-8e5f-%012d", i), bytes.Repeat([]byte("payload "), 75))
		for k := range 9 {
			msgs[i].Metadata.Set(fmt.Sprint("waybill-header-", k), fmt.Sprint("value-of-header-", i*k))
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := publisher.Publish(topic, msgs...); err != nil {
			b.Fatal(err)
		}
		if n++; n%50 == 0 { // bounds the server's memory
			b.StopTimer()
			if err := client.Del(b.Context(), topic).Err(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(b.N*len(msgs))/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkPublishSingle sends messages of 600 bytes one a call, from 64 goroutines.
func BenchmarkPublishSingle(b *testing.B) {
	client := newClient(b, testserver.RedisURL(b))
	publisher := newPublisher(b, client, redisbroker.PublisherConfig{TrimUnread: true, MaxLen: 50_000}) // bounds the server's memory
	b.ReportAllocs()
	b.SetParallelism(64 / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		m := message.NewMessage("0197c1a2-7e3b-7c4d-8e5f-000000000000", bytes.Repeat([]byte("payload "), 75))
		for k := range 9 {
			m.Metadata.Set(fmt.Sprint("waybill-header-", k), fmt.Sprint("value-of-header-", k))
		}
		for pb.Next() {
			if err := publisher.Publish(topic, m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
