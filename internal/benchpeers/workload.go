package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// sample is a message of the gateway's main queue.
//
//go:embed sample.json
var sample []byte

const (
	eventType    = "shipment.status.updated"
	orderingKeys = 200
	topic        = "courier-events"
	batchSize    = 1000 // of every contestant that has one
)

// event is appended by Waybill, and stored as its encoded envelope by the others:
// all write the same bytes.
type event struct {
	eventing.Envelope
	encoded []byte
}

// newEvent returns the i-th event of a workload.
func newEvent(i int) (event, error) {
	return makeEvent(eventing.NewID(), "evt_"+strconv.Itoa(i), "shp_"+strconv.Itoa(i%orderingKeys))
}

func makeEvent(id, eventID, shipment string) (event, error) {
	var payload bytes.Buffer
	text := strings.NewReplacer("evt_123", eventID, "shp_456", shipment).Replace(string(sample))
	if err := json.Compact(&payload, []byte(text)); err != nil {
		return event{}, fmt.Errorf("the sample event: %w", err)
	}
	e := eventing.New("shipment", shipment, json.RawMessage(payload.Bytes()))
	e.ID, e.Type, e.CorrelationID, e.SchemaVersion = id, eventType, id, 1
	e.OccurredAt = time.Date(2026, 2, 26, 12, 0, 1, 0, time.UTC)
	encoded, err := eventing.EncodeEnvelope(e)
	if err != nil {
		return event{}, fmt.Errorf("the sample event: %w", err)
	}
	return event{Envelope: e, encoded: encoded}, nil
}

func newEvents(n int) ([]event, error) {
	events := make([]event, n)
	for i := range events {
		var err error
		if events[i], err = newEvent(i); err != nil {
			return nil, err
		}
	}
	return events, nil
}

func appendables(events []event) []eventing.Appendable {
	out := make([]eventing.Appendable, len(events))
	for i, e := range events {
		out[i] = e.Envelope
	}
	return out
}

// routes sends every event to one ordered consumer.
type routes struct{ route []eventing.Route }

func newRoutes() routes {
	return routes{[]eventing.Route{{Consumer: "shipments", Topic: topic, Ordered: true}}}
}

// Route implements [eventing.Routes].
func (r routes) Route(string) (list []eventing.Route, routed bool) { return r.route, true }

// Consumer implements [eventing.Routes].
func (r routes) Consumer(name string) (route eventing.Route, known bool) {
	return r.route[0], name == r.route[0].Consumer
}
