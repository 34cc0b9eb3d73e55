package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
)

// calculateSettlement is the consumer "settlement". It fails in two ways. A missing
// tariff may be on its way: that is tried again, and becomes a dead letter after the
// last attempt. A tariff that makes no sense stays so until somebody mends it: that
// is a dead letter at once.
func (s *system) calculateSettlement(ctx context.Context, tx *sql.Tx, e eventing.Event[StatisticCalculated]) error {
	price, err := tariff(ctx, tx, e.TenantID, e.StationID)
	if err != nil {
		return err
	}
	settlement := SettlementCalculated{
		WindowID: e.Payload.WindowID, WattHours: e.Payload.Total, CentsPerKWh: price, Cents: cents(e.Payload.Total, price),
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO settlements (window_id, tenant_id, cents, settled_at) VALUES ($1, $2, $3, $4)`,
		settlement.WindowID, e.TenantID, settlement.Cents, now()); err != nil {
		return err
	}
	return s.outbox.Append(ctx, tx, at(e.TenantID, e.StationID, settlement))
}

func tariff(ctx context.Context, tx *sql.Tx, tenant, station string) (centsPerKWh int64, err error) {
	err = tx.QueryRowContext(ctx, `SELECT cents_per_kwh FROM tariffs WHERE tenant_id = $1 AND station_id = $2`, tenant, station).Scan(&centsPerKWh)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, fmt.Errorf("%s/%s has no tariff", tenant, station)
	case err != nil:
		return 0, err
	case centsPerKWh <= 0:
		return 0, eventing.PermanentWithReason("TARIFF_INVALID", fmt.Errorf("the tariff of %s/%s is %d ct per kWh", tenant, station, centsPerKWh))
	}
	return centsPerKWh, nil
}

// cents rounds half a cent up.
func cents(wattHours, centsPerKWh int64) int64 { return (wattHours*centsPerKWh + 500) / 1000 }
