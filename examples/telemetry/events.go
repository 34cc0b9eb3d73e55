package main

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// The events, in the order in which one leads to the next. The name of each type
// is the event's type; tenant and station are in the envelope's header.

// TelemetryWindowClosed says what a station has measured in one window.
type TelemetryWindowClosed struct {
	WindowID  string    `json:"window_id"`
	ClosedAt  time.Time `json:"closed_at"`
	WattHours []int64   `json:"watt_hours"` // the samples
}

// StatisticCalculated sums up one window.
type StatisticCalculated struct {
	WindowID string  `json:"window_id"`
	Count    int     `json:"count"`
	Min      int64   `json:"min"`
	Max      int64   `json:"max"`
	Total    int64   `json:"total"`
	Average  float64 `json:"average"`
}

// SettlementCalculated says what one window costs.
type SettlementCalculated struct {
	WindowID    string `json:"window_id"`
	WattHours   int64  `json:"watt_hours"`
	CentsPerKWh int64  `json:"cents_per_kwh"`
	Cents       int64  `json:"cents"`
}

// at returns an event of a station. The station is its aggregate: a consumer that
// is declared as ordered gets its events in their order.
func at[T any](tenant, station string, payload T) eventing.Event[T] {
	e := eventing.New("station", tenant+"/"+station, payload)
	e.TenantID, e.StationID = tenant, station
	return e
}
