package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/waybill-go/waybill/eventing"
)

// The consumers, which are the topics too: each has one of its own, so that what the
// server keeps for a topic is what it keeps for the consumer.
const (
	billing  = "billing"
	tracking = "tracking" // in order: its topics are tracking.00 to tracking.31
)

const (
	workers        = 4
	handlerTimeout = time.Second
	// After ackWait the server gives a message that was not acked to somebody else: to a
	// process that died it is how long its messages wait. The time begins when the message is
	// sent, and up to workers of them may wait for each other in one process.
	ackWait = workers*handlerTimeout + time.Second
)

// provision makes what the subscriber expects to find: one that makes a durable consumer
// itself deletes it when it leaves, with the others still there.
func provision(ctx context.Context, conn *nats.Conn) error {
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	topics := []string{billing}
	for p := range eventing.Partitions {
		topics = append(topics, eventing.PartitionTopic(tracking, p))
	}
	for _, stream := range []jetstream.StreamConfig{
		{Name: billing, Subjects: []string{billing}},
		{Name: tracking, Subjects: []string{tracking + ".*"}},
	} {
		stream.Retention = jetstream.WorkQueuePolicy // kept until acked; without limits nothing else removes it
		if _, err := js.CreateOrUpdateStream(ctx, stream); err != nil {
			return fmt.Errorf("stream %s: %w", stream.Name, err)
		}
	}
	for _, topic := range topics {
		stream, _, ordered := strings.Cut(topic, ".")
		inHand := workers
		if ordered {
			inHand = 1 // the next one of a partition comes after the ack of the one before
		}
		if _, err := js.CreateOrUpdatePushConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable: durable("", topic), FilterSubject: topic, DeliverSubject: "deliver." + topic, DeliverGroup: group,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: inHand,
		}); err != nil {
			return fmt.Errorf("consumer of %s: %w", topic, err)
		}
	}
	return nil
}

const group = "shop"

// durable names the JetStream consumer of a topic: there are no dots in such names.
func durable(_, topic string) string { return strings.ReplaceAll(topic, ".", "_") }

// connect returns a connection with a publisher and a subscriber. Whoever closes it need not
// close those: the subscriber would wait for subscriptions that have failed.
//
// ManualAck has to be on: else whatever is in hand when a subscription ends, or for longer
// than AckWaitTimeout, counts as acked, and is lost. TrackMsgId has to be off: the server
// would take what is replayed or requeued soon for a repeat of the first publish, and drop it.
func connect(url string) (*nats.Conn, message.Publisher, message.Subscriber, error) {
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond)) // the default gives up after two minutes
	if err != nil {
		return nil, nil, nil, err
	}
	logger := watermill.NewSlogLoggerWithLevelMapping(slog.Default(), map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug})
	pub, err1 := wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator,
	}, logger)
	sub, err2 := wmnats.NewSubscriberWithNatsConn(conn, wmnats.SubscriberSubscriptionConfig{
		SubscribersCount: workers, QueueGroupPrefix: group, AckWaitTimeout: ackWait,
		JetStream: wmnats.JetStreamConfig{DurableCalculator: durable, SubscribeOptions: []nats.SubOpt{nats.ManualAck()}},
	}, logger)
	if err := errors.Join(err1, err2); err != nil {
		conn.Close()
		return nil, nil, nil, err
	}
	return conn, pub, sub, nil
}

// startServer starts a NATS server in this process: what it has acked survives a cut of
// the power, which with its defaults takes up to two minutes.
func startServer(dir string, port int) (*server.Server, error) {
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, SyncAlways: true, NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		stopServer(s)
		return nil, errors.New("the NATS server did not start within 30 s")
	}
	return s, nil
}

func stopServer(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}
