package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// letter is a dead letter with what the courier calls its event, if the ledger
// knows it.
type letter struct {
	eventing.DeadLetter

	CourierEventID string `json:"courier_event_id,omitempty"`
	Source         string `json:"source,omitempty"`
	ShipmentID     string `json:"shipment_id,omitempty"`
}

func (l letter) target() eventing.Target {
	return eventing.Target{EventID: l.EventID, Consumer: l.Consumer}
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

// state is the status, and how it was closed.
func (l letter) state() string {
	if l.Resolution == "" {
		return string(l.Status)
	}
	return string(l.Status) + ", " + string(l.Resolution)
}

// which tells dead letters of one id apart.
type which struct {
	Consumer *string `placeholder:"NAME" help:"Of several, the one of this consumer."`
	Source   string  `placeholder:"NAME" help:"Of several, the one of this courier."`
}

// desk is where an operator works: a database that a gateway may be running on.
type desk struct {
	store   *store.Store
	letters *eventing.DeadLetters
	ledger  *ledger.Ledger
}

func withDesk(ctx context.Context, storeURL string, work func(*desk) error) error {
	s, err := store.OpenExisting(ctx, storeURL)
	if err != nil {
		return err
	}
	// The desk writes nothing into the ledger, so retention is the gateway's affair.
	err = work(&desk{s, eventing.NewDeadLetters(s.Events), ledger.New(s, 0)})
	return errors.Join(err, s.Close())
}

func (d *desk) list(ctx context.Context, f eventing.DeadLetterFilter) ([]letter, error) {
	found, err := d.letters.List(ctx, f)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].EventID
	}
	slices.Sort(ids)
	names, err := d.ledger.Names(ctx, slices.Compact(ids))
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
		more, err := d.list(ctx, eventing.DeadLetterFilter{EventID: envelope, Limit: maxLetters})
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
	_, envelopes, err := d.ledger.Events(ctx, id, "")
	if err != nil {
		return nil, err
	}
	return slices.Compact(append([]string{id}, envelopes...)), nil
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
		return letter{}, fmt.Errorf("no dead letter is called %q; find it with: gateway dlq list --all", id)
	case 1:
		return letters[0], nil
	}
	var b strings.Builder
	for _, l := range letters {
		fmt.Fprintf(&b, "\n  %s (%s)", l, l.Status)
	}
	return letter{}, usage("%d dead letters are called %q; say which with --consumer or --source:%s", len(letters), id, b.String())
}

// oldest returns at most limit dead letters that can be replayed.
func (d *desk) oldest(ctx context.Context, w which, limit int) (letters []letter, err error) {
	var consumer string
	if w.Consumer != nil {
		consumer = *w.Consumer
	}
	for _, status := range replayable {
		more, err := d.list(ctx, eventing.DeadLetterFilter{Status: status, Consumer: consumer, Limit: limit})
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
