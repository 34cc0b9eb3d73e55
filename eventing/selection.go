package eventing

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Selection says which dead letters are meant: those of a [DeadLetterFilter], and what only
// their payloads tell. Empty fields select all.
type Selection struct {
	Consumers   []string     `json:"consumers,omitempty"` // any of them
	EventType   string       `json:"event_type,omitempty"`
	TenantID    string       `json:"tenant_id,omitempty"`
	OrderingKey string       `json:"ordering_key,omitempty"` // the envelope's, of whatever consumer
	Stage       Stage        `json:"stage,omitempty"`
	Reason      ReasonCode   `json:"reason_code,omitempty"`
	Error       string       `json:"error,omitempty"` // as [NormalizeError] has it
	Status      ReviewStatus `json:"status,omitempty"`
	OpenOnly    bool         `json:"open_only,omitempty"`
	// Since (inclusive) and Until (exclusive) are times of the first death.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Match is what Matches looks for, for the record.
	Match string `json:"match,omitempty"`
	// Matches decides about a dead letter of which all else holds. One that it cannot decide
	// about is handed to Undecided, and is not selected; without Undecided, it is an error.
	Matches   func(DeadLetter) (bool, error) `json:"-"`
	Undecided func(DeadLetter, error)        `json:"-"`
	// Limit, if positive, bounds how many are selected.
	Limit int `json:"limit,omitempty"`
}

// Select calls fn for each dead letter of a selection, the oldest first, as
// [DeadLetters.Each] does: fn may act on them.
func (d *DeadLetters) Select(ctx context.Context, s Selection, fn func(DeadLetter) error) error {
	f := DeadLetterFilter{
		EventType: s.EventType, TenantID: s.TenantID, Stage: s.Stage, Reason: s.Reason, Status: s.Status, OpenOnly: s.OpenOnly,
		Since: s.Since, Until: s.Until,
	}
	if len(s.Consumers) == 1 {
		f.Consumer = s.Consumers[0]
	}
	selected := 0
	err := d.Each(ctx, f, func(dl DeadLetter) error {
		if ok, err := s.selects(dl); err != nil || !ok {
			return err
		}
		if err := fn(dl); err != nil {
			return err
		}
		if selected++; selected == s.Limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a selection that has a limit.
var errEnough = errors.New("enough")

// selects decides what the store leaves to it.
func (s *Selection) selects(dl DeadLetter) (bool, error) {
	switch {
	case len(s.Consumers) > 1 && !slices.Contains(s.Consumers, dl.Consumer),
		s.Error != "" && NormalizeError(dl.Message) != s.Error,
		s.OrderingKey != "" && dl.orderKey() != s.OrderingKey:
		return false, nil
	case s.Matches == nil:
		return true, nil
	}
	ok, err := s.Matches(dl)
	if err != nil && s.Undecided != nil {
		s.Undecided(dl, err)
		return false, nil
	}
	return ok, err
}

// orderKey returns the envelope's ordering key: of an unordered consumer, the row has none.
func (d *DeadLetter) orderKey() string {
	if d.OrderingKey != "" {
		return d.OrderingKey
	}
	e, err := DecodeEnvelope(d.Payload)
	if err != nil || isSynthetic(d.EventID) {
		return ""
	}
	return e.OrderKey()
}
