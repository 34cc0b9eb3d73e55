// Package router registers typed handlers for consumers and runs them on
// Watermill's router.
//
//	r, err := router.New(router.Config{Store: store, Subscriber: broker})
//	err = r.AddConsumer(router.Consumer{Name: "billing", Policy: eventing.Policy{Ordered: true}})
//	err = router.HandleTx(r, "billing", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced]) error {
//		…
//	})
//	err = r.Run(ctx)
//
// The router is also the dispatcher's routing table ([eventing.Routes]): an event
// goes to the consumers that have a handler for its type.
//
// With [Config].Poison in the place of a store, consumers are storeless: [Handle] only, bounded
// retries in the process, and then a poison topic.
package router
