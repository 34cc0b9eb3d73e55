package backend

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
	"github.com/waybill-go/waybill/internal/sqlstore"
	"github.com/waybill-go/waybill/router"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/life"
	"github.com/waybill-go/waybill/service/internal/shipments"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/worker"
)

// OnSQL is the backend on an SQL database.
func OnSQL(s *store.Store, cfg Config) *Backend {
	l, projection := ledger.New(s, cfg.ProcessedTTL), shipments.New(s)
	b := &Backend{
		Embedded: s.Embedded, SQL: s, Ledger: l, Shipments: projection, Lives: life.New(s), InboxTTL: cfg.ProcessedTTL,
		Receiver: l.Receiver, PendingAtMost: s.PendingAtMost, Pending: s.Pending, Ping: s.Ping, Migrate: s.Migrate, Close: s.Close,
	}
	if s.Postgres != nil {
		b.Events, b.Telling = s.Postgres, tellWith[pgx.Tx]
		b.Register = func(r *router.Router, policy eventing.Policy, w Worker) error {
			return register(r, policy, w, shipments.Postgres{Shipments: projection}, ledgerIn[pgx.Tx]{l, pgstore.Conn}, s.Postgres)
		}
		return b
	}
	b.Events, b.Telling = s.Events, tellWith[*sql.Tx]
	b.Register = func(r *router.Router, policy eventing.Policy, w Worker) error {
		conn := func(tx *sql.Tx) sqlstore.Conn { return sqlstore.SQLConn{C: tx} }
		return register(r, policy, w, shipments.SQLite{Shipments: projection}, ledgerIn[*sql.Tx]{l, conn}, s.Events)
	}
	return b
}

func register[Tx any](r *router.Router, policy eventing.Policy, w Worker, p worker.Projection[Tx], l worker.Ledger[Tx], outbox worker.Outbox[Tx]) error {
	of := worker.Worker[Tx]{Shipments: p, Ledger: l, Batch: w.Batch, Logger: w.Logger, Now: w.Now}
	if w.Tells {
		of.Outbox = outbox
	}
	return of.Register(r, policy)
}

// ledgerIn is the ledger in transactions of type Tx.
type ledgerIn[Tx any] struct {
	*ledger.Ledger
	conn func(Tx) sqlstore.Conn
}

// Enter implements [worker.Ledger].
func (l ledgerIn[Tx]) Enter(ctx context.Context, tx Tx, arrivals []courier.Arrival) ([]courier.Standing, error) {
	return l.Ledger.Enter(ctx, l.conn(tx), arrivals)
}

// Conclude implements [worker.Ledger].
func (l ledgerIn[Tx]) Conclude(ctx context.Context, tx Tx, c eventing.Conclusion, now time.Time) (allowed bool, err error) {
	return l.Ledger.Conclude(ctx, l.conn(tx), c, now)
}
