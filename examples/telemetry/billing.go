package main

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/eventing"
)

// addToBill is the consumer "billing-report": it keeps each tenant's sum. Adding is
// not idempotent. It need not be: it happens once for each event.
func addToBill(ctx context.Context, tx *sql.Tx, e eventing.Event[SettlementCalculated]) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO bills (tenant_id, windows, cents) VALUES ($1, 1, $2)
		ON CONFLICT (tenant_id) DO UPDATE SET windows = bills.windows + 1, cents = bills.cents + excluded.cents`, e.TenantID, e.Payload.Cents)
	return err
}
