package eventing

import "context"

// expedite sends rows of the critical lane to their unordered consumers at once,
// however many rows are before them. Those that go to ordered consumers too are marked,
// and go to these in their turn. It returns how many rows it dealt with, and those that
// need no turn any more.
func (w *worker) expedite(ctx context.Context, rows []OutboxRow) (n int, gone map[int64]bool, err error) {
	if len(rows) == 0 {
		w.expedited = nil
		return 0, nil, nil
	}
	b := newBatch(w, rows)
	b.expediting = true
	for i := range rows {
		if w.d.inFlight.has(rows[i].Seq) {
			continue
		}
		if _, err := b.add(&rows[i]); err != nil {
			continue // it becomes a dead letter in its turn, lest it be overtaken in its key
		}
	}
	gone = map[int64]bool{}
	if cp, ok := w.d.pub.(CompletionPublisher); ok {
		for _, s := range b.sendings {
			s.early = s.ordered
			gone[s.row.Seq] = !s.ordered
		}
		n, err := b.launch(ctx, cp)
		return n, gone, err
	}
	if err := b.send(ctx); err != nil { // rows that nobody takes become dead letters in their turn, or the broker is down
		w.d.cfg.Logger.Debug("dispatcher: critical events were not published; will try again", "error", err)
	}
	w.expedited = b.halfTaken()
	var settled, marked []OutboxRow
	settled = append(settled, b.unrouted...)
	for _, s := range b.sendings {
		switch {
		case s.open > 0:
		case s.ordered:
			w.expedited[s.row.Seq] = s.taken
			marked = append(marked, *s.row)
		default:
			settled = append(settled, *s.row)
		}
	}
	done, err := w.d.settle(ctx, settled)
	if err != nil {
		return done, gone, err
	}
	for _, row := range settled {
		gone[row.Seq] = true
	}
	if err := w.d.mark(ctx, marked); err != nil {
		return done, gone, err
	}
	return done + len(marked), gone, nil
}
