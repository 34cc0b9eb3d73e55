package middleware

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
)

// Logging goes innermost, around [Recover], to log each attempt; or outermost, before
// [Consume] or [DeadLetter], to log each message of the broker, a dead letter as a success. It logs
//
//   - at debug level a success, at warn level a failure, with its error and reason code;
//   - at error level a permanent failure, and a panic with up to 4 KB of its stack;
//   - at debug level what the end of the message's context interrupted, as a shutdown does.
//
// Each record has event_id, event_type, correlation_id, message_uuid (that of the broker's
// message), topic and handler, and took, the duration. Payloads are never logged; what is in a
// handler's error is up to the handler.
func Logging(logger *slog.Logger) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx, began := m.Context(), time.Now()
			attrs := []slog.Attr{
				slog.String("event_id", eventID(m)),
				slog.String("event_type", m.Metadata.Get("event_type")),
				slog.String("correlation_id", m.Metadata.Get("correlation_id")),
				slog.String("message_uuid", m.UUID),
				slog.String("topic", message.SubscribeTopicFromCtx(ctx)),
				slog.String("handler", message.HandlerNameFromCtx(ctx)),
			}
			record := func(level slog.Level, text string, more ...slog.Attr) {
				attrs = append(append(attrs, slog.Duration("took", time.Since(began))), more...)
				logger.LogAttrs(ctx, level, text, attrs...)
			}
			returned := false
			defer func() {
				if !returned { // the panic goes on, to whoever recovers it
					record(slog.LevelError, "the handler panicked", slog.String("stack", string(panicStack(debug.Stack()))))
				}
			}()
			produced, err := h(m)
			returned = true
			logResult(ctx, record, err)
			return produced, err
		}
	}
}

func logResult(ctx context.Context, record func(slog.Level, string, ...slog.Attr), err error) {
	if err == nil {
		record(slog.LevelDebug, "message handled")
		return
	}
	failure := []slog.Attr{slog.Any("error", err), slog.String("reason", string(eventing.ReasonOf(err)))}
	var panicked *eventing.PanicError
	switch {
	case errors.As(err, &panicked):
		record(slog.LevelError, "the handler panicked", append(failure, slog.String("stack", string(panicked.Stack)))...)
	case ctx.Err() != nil:
		record(slog.LevelDebug, "the handler was interrupted", failure[0])
	case eventing.IsPermanent(err):
		record(slog.LevelError, "the handler failed for good", failure...)
	default:
		record(slog.LevelWarn, "the handler failed", failure...)
	}
}
