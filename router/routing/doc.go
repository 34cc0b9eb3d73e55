// Package routing compiles routing files: YAML that says which events go to which consumers, and
// what these are to do about each.
//
// Three questions are answered at three times. Which consumers get an event is decided when it is
// dispatched, by the file's matrix and the event's type alone: a [Table] is the dispatcher's
// routing table. Which actions a consumer takes is decided when it has the event, by rules with CEL conditions on
// the payload, and on context that is looked up then, so that a slow lookup holds up its own consumer
// only. What an action does is written in Go:
//
//	table, err := routing.Load("routes.yaml")
//	app, err := routing.New(router.Config{Store: store, Subscriber: broker}, table, routing.Config{
//		Lookups: map[string]routing.LookupFunc{"customer": customers.ByID},
//	})
//	err = routing.HandleTx(app, "billing", "charge", func(ctx context.Context, tx *sql.Tx, e eventing.Event[OrderPlaced], a routing.Action) error {
//		…
//	})
//	dispatcher, err := eventing.NewDispatcher(store, broker, app, eventing.DispatcherConfig{})
//	err = app.Run(ctx)
//
// A file is checked before it is used: conditions against the schemas of the events that they can
// meet, and their cost; [Table.Lint] finds what is legal and still cannot be meant. [Table.Explain] tells, for one event,
// each rule that was tried; it is the same code as runs in production. [Diff] compares two tables over
// recorded events.
//
// No rule drops an event silently: one of an unknown type is a dead letter at dispatch; one that a
// consumer's table does not send to it, or whose condition fails, is a dead letter of that consumer.
package routing
