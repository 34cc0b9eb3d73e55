package middleware

import (
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Logging logs each run of the handler: at debug level if it succeeds, at warn
// level with its error if it fails. Payloads are never logged.
func Logging(logger *slog.Logger) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			began := time.Now()
			produced, err := h(m)
			level, attrs := slog.LevelDebug, []slog.Attr{
				slog.String("event_id", m.UUID),
				slog.String("event_type", m.Metadata.Get("event_type")),
				slog.String("correlation_id", m.Metadata.Get("correlation_id")),
				slog.String("topic", message.SubscribeTopicFromCtx(m.Context())),
				slog.Duration("took", time.Since(began)),
			}
			if err != nil {
				level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", err))
			}
			logger.LogAttrs(m.Context(), level, "message handled", attrs...)
			return produced, err
		}
	}
}
