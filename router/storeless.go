package router

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/middleware"
)

// Poison makes a router's consumers storeless: at least once, with retries in the process that
// last a minute at most, and then this topic. They cannot be Ordered, transactional or
// exactly once, run no actions, and have no inbox: duplicates reach the handler. See
// [middleware.ConsumeStoreless].
type Poison struct {
	Publisher message.Publisher
	// Topic that gets the events that failed for good. No consumer may read it.
	Topic string
}

// checkStore: a router has the one or the other, so that it is never in doubt what a
// consumer promises.
func (cfg Config) checkStore() error {
	poison := cfg.Poison.Publisher != nil || cfg.Poison.Topic != ""
	switch {
	case cfg.Store == nil && !poison:
		return errors.New("Config.Store is needed, or Config.Poison for consumers without a store")
	case cfg.Store != nil && poison:
		return errors.New("Config.Store and Config.Poison exclude each other: consumers with a store have dead letters; leave one out")
	case poison && (cfg.Poison.Publisher == nil || cfg.Poison.Topic == ""):
		return errors.New("Config.Poison needs a publisher and a topic")
	}
	return nil
}

func (r *Router) storeless() bool { return r.cfg.Store == nil }

// consumeStoreless fails on what a consumer asks for and only a store can do.
func (r *Router) consumeStoreless(c Consumer) (message.HandlerMiddleware, error) {
	switch {
	case len(c.Actions) > 0:
		return nil, fmt.Errorf("router: consumer %s: Actions need a store, in whose transaction they run; leave them out, or give the router a store", c.Name)
	case c.OnConclude != nil:
		return nil, fmt.Errorf("router: consumer %s: OnConclude needs a store, in whose transaction it runs; leave it out, or give the router a store", c.Name)
	case c.Topic == r.cfg.Poison.Topic:
		return nil, fmt.Errorf("router: consumer %s reads the poison topic %s: what fails there would come back without end", c.Name, c.Topic)
	}
	composite, err := middleware.ConsumeStoreless(middleware.StorelessConfig{
		Name: c.Name, Policy: c.Policy, Prepare: c.Prepare, Publisher: r.cfg.Poison.Publisher, PoisonTopic: r.cfg.Poison.Topic,
		Codec: c.Codec, Observer: r.cfg.Observer, Tracer: r.cfg.Tracer, Logger: r.cfg.Logger, Random: r.cfg.Random,
	})
	if err != nil {
		return nil, fmt.Errorf("router: %w", err)
	}
	return composite, nil
}
