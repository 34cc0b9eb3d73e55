package backend

import (
	"database/sql"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/life"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// OnSQL is the backend on an SQL database.
func OnSQL(s *store.Store, cfg Config) *Backend {
	l, projection := ledger.New(s, cfg.ProcessedTTL), shipments.New(s)
	return &Backend{
		Events: s.Events, Embedded: s.Embedded, SQL: s, Ledger: l, Shipments: projection, Lives: life.New(s), InboxTTL: cfg.ProcessedTTL,
		Receiver: l.Receiver, PendingAtMost: s.PendingAtMost, Pending: s.Pending, Ping: s.Ping, Migrate: s.Migrate, Close: s.Close,
		Register: func(r *router.Router, policy eventing.Policy, w Worker) error {
			return register(r, policy, w, projection, l, s.Events)
		},
		Telling: tellWith[*sql.Tx],
	}
}

func register[Tx any](r *router.Router, policy eventing.Policy, w Worker, p worker.Projection[Tx], l worker.Ledger[Tx], outbox worker.Outbox[Tx]) error {
	of := worker.Worker[Tx]{Shipments: p, Ledger: l, Batch: w.Batch, Logger: w.Logger, Now: w.Now}
	if w.Tells {
		of.Outbox = outbox
	}
	return of.Register(r, policy)
}
