package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// calculateStatistic is the consumer "statistics". The row, the next event and the
// record that this event is processed are one commit.
func (s *system) calculateStatistic(ctx context.Context, tx *sql.Tx, e eventing.Event[TelemetryWindowClosed]) error {
	statistic, err := statisticOf(e.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO statistics (window_id, samples, min_wh, max_wh, total_wh, average) VALUES ($1, $2, $3, $4, $5, $6)`,
		statistic.WindowID, statistic.Count, statistic.Min, statistic.Max, statistic.Total, statistic.Average); err != nil {
		return err
	}
	// ctx has this event's correlation ID, and its ID as the cause: Append passes them on.
	return s.outbox.Append(ctx, tx, at(e.TenantID, e.StationID, statistic))
}

func statisticOf(w TelemetryWindowClosed) (StatisticCalculated, error) {
	if len(w.WattHours) == 0 {
		return StatisticCalculated{}, eventing.PermanentWithReason("WINDOW_EMPTY", errors.New("the window has no samples"))
	}
	s := StatisticCalculated{WindowID: w.WindowID, Count: len(w.WattHours), Min: slices.Min(w.WattHours), Max: slices.Max(w.WattHours)}
	for _, wh := range w.WattHours {
		s.Total += wh
	}
	s.Average = float64(s.Total) / float64(s.Count)
	return s, nil
}
