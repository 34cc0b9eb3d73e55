package sqlbroker

import "github.com/ThreeDotsLabs/watermill/message"

// Clean deletes what all groups of a topic have acked, now.
func (s *Subscriber) Clean(topic string) error { return s.clean(topic) }

// DecodeMetadata is what makes a row a message.
func DecodeMetadata(text []byte) (message.Metadata, error) { return row{metadata: text}.decode() }
