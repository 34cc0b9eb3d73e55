package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// window is what a station has measured.
type window struct {
	id, tenant, station string
	wattHours           []int64
}

// stations close windows.
type stations struct{ outbox *eventing.Outbox[*sql.Tx] }

// closeWindow stores the window and announces it. Both are one commit: there is no
// window without its event, and no event of a window that was never stored.
func (s stations) closeWindow(ctx context.Context, w window) error {
	closedAt := now()
	err := s.outbox.InTx(ctx, func(tx *sql.Tx) error {
		if err := insertWindow(ctx, tx, w, closedAt); err != nil {
			return err
		}
		return s.outbox.Append(ctx, tx, at(w.tenant, w.station, TelemetryWindowClosed{w.id, closedAt, w.wattHours}))
	})
	if err != nil {
		return fmt.Errorf("close window %s of %s/%s: %w", w.id, w.tenant, w.station, err)
	}
	return nil
}

func insertWindow(ctx context.Context, tx *sql.Tx, w window, closedAt time.Time) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO windows (window_id, tenant_id, station_id, closed_at, samples) VALUES ($1, $2, $3, $4, $5)`,
		w.id, w.tenant, w.station, closedAt, len(w.wattHours))
	return err
}

// now is as precise as both databases keep it.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
