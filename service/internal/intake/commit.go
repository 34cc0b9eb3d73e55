package intake

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/service/internal/httpapi"
)

// commit stores a group, and answers each of its requests.
func (i *Intake) commit(group []*request) {
	ctx, cancel := context.WithTimeout(i.ctx, i.cfg.Timeout)
	defer cancel()
	group = slices.DeleteFunc(group, func(r *request) bool { return r.gone.Load() })
	slices.SortStableFunc(group, func(a, b *request) int {
		return strings.Compare(a.entry.Event.IdempotencyKey, b.entry.Event.IdempotencyKey)
	})
	i.store(ctx, group)
}

// store stores a group that is sorted by key. What is refused together is tried by halves: one
// event that the store cannot hold must not fail its neighbours.
func (i *Intake) store(ctx context.Context, group []*request) {
	if len(group) == 0 {
		return
	}
	entries := make([]*Entry, 0, len(group))
	for n, r := range group {
		if i.isFirst(group, n) {
			entries = append(entries, r.entry)
		}
	}
	receipts, err := i.receive(ctx, entries)
	switch {
	case err == nil:
		i.reply(group, receipts)
	case len(group) == 1 || errors.Is(err, ErrUnavailable) || ctx.Err() != nil:
		for _, r := range group {
			r.answer <- answer{err: fmt.Errorf("accept %s: %w", r.entry.Event.EventID, err)}
		}
	default:
		half := len(group) / 2
		i.store(ctx, group[:half])
		i.store(ctx, group[half:])
	}
}

// isFirst reports whether a request is the first of its key, or counts as one.
func (i *Intake) isFirst(group []*request, n int) bool {
	return n == 0 || i.cfg.Direct || group[n].entry.Event.IdempotencyKey != group[n-1].entry.Event.IdempotencyKey
}

// reply answers a group. Requests with one key share its receipt: the first of them, or
// whoever came before, has decided which body the key stands for.
func (i *Intake) reply(group []*request, receipts []Receipt) {
	at := -1
	for n, r := range group {
		if i.isFirst(group, n) {
			at++
		}
		if known := receipts[at]; known.BodyHash == r.entry.BodyHash {
			r.answer <- answer{traceID: known.TraceID}
		} else {
			r.answer <- answer{err: httpapi.ErrConflict}
		}
	}
}

// receive turns a panic into an error: it is one event's at most, not the process's end.
func (i *Intake) receive(ctx context.Context, entries []*Entry) (receipts []Receipt, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the store panicked: %v\n%s", v, debug.Stack())
		}
	}()
	receipts, err = i.cfg.Store.Receive(ctx, entries)
	if err == nil && len(receipts) != len(entries) {
		err = fmt.Errorf("%d receipts for %d entries", len(receipts), len(entries))
	}
	return receipts, err
}
