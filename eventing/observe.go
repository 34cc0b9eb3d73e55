package eventing

import "time"

// Observer is told what dispatchers and consumers have done, once it is committed. Package
// middleware makes metrics of it. The functions are called from many goroutines, some of
// them on the way of each event: they must return at once and must not panic. Those that are nil are
// not called. After a crash nobody is told of what happened just before: the store knows.
type Observer struct {
	// Published: so many events of a type are with the broker, and settled.
	Published func(eventType string, events int)
	// Concluded: an attempt of a handler has ended, in whatever way, after this time.
	Concluded func(c Conclusion, took time.Duration)
	// Duplicate: an event arrived that the consumer has processed already, or has in its store.
	Duplicate func(consumer, eventType string)
	// Parked: an event waits in the store for an earlier one of its ordering key.
	Parked func(consumer, eventType string)
	// Alert: an event is exhausted, and the policy of its consumer names [ActionAlert].
	Alert func(c Conclusion)
	// Breaker: a consumer's circuit breaker has changed its state. When it is open no longer, a
	// timer tells, perhaps after the consumer's end.
	Breaker func(consumer string, state BreakerState)
	// Lease: a partition of a scope, such as [DispatchScope], was won or lost.
	Lease func(scope string, partition int, won bool)
}

// complete returns one all of whose functions can be called.
func (o *Observer) complete() Observer {
	var c Observer
	if o != nil {
		c = *o
	}
	if c.Published == nil {
		c.Published = func(string, int) {}
	}
	if c.Concluded == nil {
		c.Concluded = func(Conclusion, time.Duration) {}
	}
	if c.Duplicate == nil {
		c.Duplicate = func(string, string) {}
	}
	if c.Parked == nil {
		c.Parked = func(string, string) {}
	}
	if c.Alert == nil {
		c.Alert = func(Conclusion) {}
	}
	if c.Breaker == nil {
		c.Breaker = func(string, BreakerState) {}
	}
	if c.Lease == nil {
		c.Lease = func(string, int, bool) {}
	}
	return c
}
