package inproc

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// SubscribeWindow is Subscribe with a window of its own.
func (b *Broker) SubscribeWindow(ctx context.Context, topic string, window int) (<-chan *message.Message, error) {
	return b.subscribe(ctx, topic, "", window, false)
}
