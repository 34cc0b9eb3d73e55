package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// letter is a dead letter with what the courier calls its event, if the ledger
// knows it.
type letter struct {
	eventing.DeadLetter

	CourierEventID string `json:"courier_event_id,omitempty"`
	Source         string `json:"source,omitempty"`
	ShipmentID     string `json:"shipment_id,omitempty"`
}

// String names the dead letter as an operator would.
func (l letter) String() string {
	s := l.EventID
	if l.CourierEventID != "" {
		s = l.CourierEventID + " of " + l.Source
	}
	if l.Consumer == "" {
		return s + " at no consumer"
	}
	return s + " at " + l.Consumer
}

// state is the status, and what is behind it.
func (l letter) state() string {
	switch {
	case l.Resolution != "":
		return string(l.Status) + ", " + string(l.Resolution)
	case !l.ScheduledAt.IsZero():
		return string(l.Status) + ", replays at " + l.ScheduledAt.UTC().Format(time.RFC3339)
	}
	return string(l.Status)
}

// which tells dead letters of one id apart.
type which struct {
	Consumer *string `placeholder:"NAME" help:"Of several, the one of this consumer."`
	Source   string  `courier:"" placeholder:"NAME" help:"Of several, the one of this courier."`
}

// selected returns the dead letters of a selection, without their payloads.
func (d *desk) selected(ctx context.Context, s eventing.Selection) ([]letter, error) {
	var found []eventing.DeadLetter
	if err := d.letters.Select(ctx, s, func(dl eventing.DeadLetter) error {
		dl.Payload = nil
		found = append(found, dl)
		return nil
	}); err != nil {
		return nil, err
	}
	return d.named(ctx, found)
}

// named adds the names.
func (d *desk) named(ctx context.Context, found []eventing.DeadLetter) ([]letter, error) {
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].EventID
	}
	slices.Sort(ids)
	names, err := d.names.Names(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	letters := make([]letter, len(found))
	for i, f := range found {
		n := names[f.EventID]
		letters[i] = letter{f, n.EventID, n.Source, n.ShipmentID}
	}
	return letters, nil
}

// find returns the dead letters that id and w name.
func (d *desk) find(ctx context.Context, id string, w which) (letters []letter, err error) {
	envelopes, err := d.envelopes(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, envelope := range envelopes {
		found, err := d.letters.List(ctx, eventing.DeadLetterFilter{EventID: envelope, Limit: maxLetters})
		if err != nil {
			return nil, err
		}
		more, err := d.named(ctx, found)
		if err != nil {
			return nil, err
		}
		letters = append(letters, more...)
	}
	return slices.DeleteFunc(letters, func(l letter) bool {
		return w.Source != "" && l.Source != w.Source || w.Consumer != nil && l.Consumer != *w.Consumer
	}), nil
}

// envelopes returns id itself, and the envelopes of the events that couriers call
// so.
func (d *desk) envelopes(ctx context.Context, id string) ([]string, error) {
	called, err := d.names.Envelopes(ctx, []string{id}, "")
	if err != nil {
		return nil, err
	}
	envelopes := []string{id}
	for _, c := range called[id] {
		envelopes = append(envelopes, c.EnvelopeID)
	}
	return slices.Compact(envelopes), nil
}

// one returns the dead letter that id and w name. To act on, closed ones do not
// come into question while there is an open one.
func (d *desk) one(ctx context.Context, id string, w which, toAct bool) (letter, error) {
	letters, err := d.find(ctx, id, w)
	if err != nil {
		return letter{}, err
	}
	closed := func(l letter) bool { return l.Status == eventing.StatusClosed }
	if left := slices.DeleteFunc(slices.Clone(letters), closed); toAct && len(left) > 0 {
		letters = left
	}
	switch len(letters) {
	case 0:
		return letter{}, d.notThere(ctx, id, w)
	case 1:
		return letters[0], nil
	}
	var b strings.Builder
	for _, l := range letters {
		fmt.Fprintf(&b, "\n  %s (%s)", l, l.Status)
	}
	by := "--consumer"
	if d.tool.couriers {
		by += " or --source"
	}
	return letter{}, usage("%d dead letters are called %q; say which with %s:%s", len(letters), id, by, b.String())
}

// notThere says that no dead letter is so, and which ones are nearly.
func (d *desk) notThere(ctx context.Context, id string, w which) error {
	others, err := d.find(ctx, id, which{})
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return fmt.Errorf("no dead letter is called %q; find it with: %s dlq list --all", id, d.tool.name)
	}
	place := "of that --source"
	if w.Consumer != nil {
		place = fmt.Sprintf("at consumer %q", *w.Consumer)
	}
	var b strings.Builder
	for _, l := range others {
		fmt.Fprintf(&b, "\n  %s (%s)", l, l.Status)
	}
	return fmt.Errorf("%q has no dead letter %s; it has:%s", id, place, b.String())
}

// oldest returns at most limit dead letters that can be replayed.
func (d *desk) oldest(ctx context.Context, w which, limit int) (letters []letter, err error) {
	s := eventing.Selection{Limit: limit}
	if w.Consumer != nil {
		s.Consumers = []string{*w.Consumer}
	}
	for _, status := range replayable {
		s.Status = status
		more, err := d.selected(ctx, s)
		if err != nil {
			return nil, err
		}
		letters = append(letters, more...)
	}
	slices.SortStableFunc(letters, func(a, b letter) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.EventID, b.EventID), cmp.Compare(a.Consumer, b.Consumer))
	})
	return letters[:min(limit, len(letters))], nil
}
