package redisbroker

// Waiting returns how many calls of Publish wait to be sent.
func Waiting(p *Publisher) int {
	p.gatherer.mu.Lock()
	defer p.gatherer.mu.Unlock()
	return len(p.gatherer.calls)
}

// Senders returns how many transactions of such calls are under way.
func Senders(p *Publisher) int {
	p.gatherer.mu.Lock()
	defer p.gatherer.mu.Unlock()
	return p.gatherer.senders
}

// RemoveConsumers is what a subscriber calls when it comes and goes.
var RemoveConsumers = removeConsumers
