package middleware

import (
	"strings"
	"sync"
)

// otherLabel stands for all values of a label beyond its bound.
const otherLabel = "other"

// maxLabelBytes bounds a label's value: event types come from outside.
const maxLabelBytes = 100

// labelValue makes any bytes a label's value. Values that are the same up to the bound are
// counted as one.
func labelValue(v string) string {
	return strings.ToValidUTF8(v[:min(len(v), maxLabelBytes)], "?") // also for a character that is cut
}

// boundedSet lets a number of values in, the first that come, for as long as the process
// lives.
type boundedSet[K comparable] struct {
	max  int
	mu   sync.RWMutex
	seen map[K]struct{}
}

func newBoundedSet[K comparable](most int) *boundedSet[K] {
	return &boundedSet[K]{max: most, seen: make(map[K]struct{})}
}

func (s *boundedSet[K]) admits(k K) bool {
	s.mu.RLock()
	_, ok := s.seen[k]
	full := len(s.seen) >= s.max
	s.mu.RUnlock()
	if ok || full {
		return ok
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[k]; !ok && len(s.seen) >= s.max {
		return false
	}
	s.seen[k] = struct{}{}
	return true
}

// pair is an event type at a consumer.
type pair struct{ eventType, consumer string }

// labels bounds the values of labels.
type labels struct {
	types, consumers, scopes *boundedSet[string]
	pairs                    *boundedSet[pair]
}

func (l *labels) eventType(v string) string { return admitted(l.types, v) }

func (l *labels) consumer(v string) string { return admitted(l.consumers, v) }

func (l *labels) scope(v string) string { return admitted(l.scopes, v) }

// of returns the labels of an event type at a consumer: where both are known, but the two
// together are one too many, the type is "other".
func (l *labels) of(eventType, consumer string) (string, string) {
	p := pair{l.eventType(eventType), l.consumer(consumer)}
	if p.eventType != otherLabel && !l.pairs.admits(p) {
		return otherLabel, p.consumer
	}
	return p.eventType, p.consumer
}

func admitted(s *boundedSet[string], v string) string {
	if v = labelValue(v); s.admits(v) {
		return v
	}
	return otherLabel
}
