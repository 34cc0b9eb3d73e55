package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/waybill-go/waybill/eventing"
)

// MetadataReasonCode is the metadata key under which a message of a poison topic has its
// reason code, see [eventing.ReasonCode].
const MetadataReasonCode = "waybill_reason_code"

// DeadLetterConfig configures [DeadLetter].
type DeadLetterConfig struct {
	// Publisher and Topic of the poison messages. Needed. The topic must not be one that
	// the handler reads.
	Publisher message.Publisher
	Topic     string
	// Logger is told of each message that goes there. Default: slog.Default().
	Logger *slog.Logger
}

// DeadLetter goes outside of everything but logging: what is outside of it sees a dead letter as a
// success. It publishes the message whose handler failed for good to a poison topic,
// as it came, with the metadata of Watermill's PoisonQueue (reason_poisoned, topic_poisoned,
// handler_poisoned, subscriber_poisoned) and [MetadataReasonCode]; then the message is acked. The
// error's text is cut at 1,024 bytes.
//
// Only a permanent error, which [Retry] makes of its last, is the event's death. Any
// other goes on to the router, which nacks: without Retry inside, the broker's redelivery is the retry. So
// does every error once the message's context has ended, since a shutdown is not the event's
// fault. A publish that fails is returned too, with the handler's error: the message is
// nacked and never lost. A crash between publish and ack delivers it again, so the poison topic may see a duplicate,
// under the same message ID.
//
// Watermill's PoisonQueue takes every error, without a filter also that of a shutdown; it
// publishes what the failed handler had produced; and it writes its metadata into the message
// itself, where a later redelivery in the process finds it.
func DeadLetter(cfg DeadLetterConfig) (message.HandlerMiddleware, error) {
	if cfg.Publisher == nil || cfg.Topic == "" {
		return nil, errors.New("dead letter: a publisher and a topic are needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx, letter := m.Context(), m.CopyWithContext() // before the handler can change either
			produced, err := h(m)
			if err == nil {
				return produced, nil
			}
			if ctx.Err() != nil || !eventing.IsPermanent(err) {
				return nil, err
			}
			poison(ctx, letter.Metadata, err)
			if failed := cfg.Publisher.Publish(cfg.Topic, letter); failed != nil {
				return nil, fmt.Errorf("dead letter: publish to %s, so that the message can be acked: %w", cfg.Topic, errors.Join(failed, err))
			}
			cfg.Logger.Error("dead letter: the handler failed for good; the message is in the poison topic now", "event_id", eventID(letter),
				"event_type", letter.Metadata.Get("event_type"), "reason", eventing.ReasonOf(err), "topic", cfg.Topic, "error", err)
			return nil, nil
		}
	}, nil
}

func poison(ctx context.Context, metadata message.Metadata, err error) {
	metadata.Set(wm.ReasonForPoisonedKey, eventing.Conclusion{Err: err}.Message())
	metadata.Set(wm.PoisonedTopicKey, message.SubscribeTopicFromCtx(ctx))
	metadata.Set(wm.PoisonedHandlerKey, message.HandlerNameFromCtx(ctx))
	metadata.Set(wm.PoisonedSubscriberKey, message.SubscriberNameFromCtx(ctx))
	metadata.Set(MetadataReasonCode, string(eventing.ReasonOf(err)))
}
