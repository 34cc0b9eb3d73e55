package routing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// retention looks for what the file keeps for too short a time, and for categories that mean nothing.
func (l *linter) retention() {
	keeps := map[string]*routefile.Retention{}
	for i := range l.table.file.Retention {
		keeps[l.table.file.Retention[i].Category.Text] = &l.table.file.Retention[i]
	}
	l.retries(keeps)
	used := map[string]bool{}
	for _, t := range l.types {
		used[t.src.Category.Text] = true
		if t.src.Category.Text == "" && len(keeps) > 0 {
			l.info(t.src.Pos, "type-without-category", "%s is of no category, so the event log keeps its events for ever: add \"category:\" to it", t.src.Text)
		}
	}
	entangled := l.entangled(keeps)
	for i := range l.table.file.Retention {
		r := &l.table.file.Retention[i]
		if !used[r.Category.Text] {
			l.warn(r.Category.Pos, "category-without-types", "no event type is of category %s: add \"category: %s\" to some, or remove it", r.Category.Text, r.Category.Text)
		}
		l.lives(r, keeps, entangled)
	}
}

// retries looks for consumers that may still be trying when something of the event is gone.
func (l *linter) retries(keeps map[string]*routefile.Retention) {
	for _, c := range l.table.order {
		policy := c.src.Policy.WithDefaults()
		horizon := policy.Horizon()
		if horizon > policy.DeadLetterRetention {
			l.warn(c.src.Pos, "retries-outlast-retention",
				"the retries of %s may take %s, and a dead letter is kept for %s only, so a replay could outlive it: raise dead_letter_retention, or lower retry",
				c.src.Text, written(horizon), written(policy.DeadLetterRetention))
		}
		short := map[string]bool{}
		for _, t := range l.types {
			if r := keeps[t.src.Category.Text]; r != nil && t.cells[c.src.Text] != nil && r.Keep.Duration() < horizon {
				short[r.Category.Text] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(short)) {
			l.warn(c.src.Pos, "retries-outlast-retention",
				"the retries of %s may take %s, and the event log keeps events of category %s for %s only, so one could be forgotten before it is processed: raise the retention, or lower retry",
				c.src.Text, written(horizon), name, keeps[name].Keep)
		}
	}
}

// written is a duration as people read it.
func written(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 0 {
		if d -= days * 24 * time.Hour; d < time.Hour {
			return fmt.Sprintf("%dd", days)
		}
		return fmt.Sprintf("%dd %dh", days, d/time.Hour)
	}
	return d.Round(time.Millisecond).String()
}

// lives looks for a category whose lives end, or begin again, in a way that the event log refuses, or that keeps more than it seems.
func (l *linter) lives(r *routefile.Retention, keeps map[string]*routefile.Retention, entangled map[*routefile.Retention]bool) {
	ends := map[string]bool{}
	for _, n := range r.After {
		ends[n.Text] = true
	}
	for _, n := range r.Unless {
		if ends[n.Text] {
			l.error(n.Pos, "life-contradiction", "%s is under after and under unless of category %s: an event either ends a life or begins it again; remove it from one of them", n.Text, r.Category.Text)
		}
	}
	for _, n := range slices.Concat(r.After, r.Unless) {
		if other := keeps[l.categoryOf(n)]; other != nil && other != r && !entangled[r] {
			l.info(n.Pos, "life-of-other-category",
				"%s is of category %s: the event log keeps it as long as events of category %s depend on it, which may be longer than category %s says; give it this category, if it is not meant so",
				n.Text, other.Category.Text, r.Category.Text, other.Category.Text)
		}
	}
}

func (l *linter) categoryOf(eventType routefile.Name) string {
	return l.table.types[eventType.Text].src.Category.Text
}

// entangled looks for categories that wait for each other: the lives of each end by events of the next one. It returns those of which
// it has told.
func (l *linter) entangled(keeps map[string]*routefile.Retention) map[*routefile.Retention]bool {
	told, done := map[*routefile.Retention]bool{}, map[*routefile.Retention]bool{}
	var path []*routefile.Retention
	place := map[*routefile.Retention]int{} // in the path, from 1
	var visit func(*routefile.Retention)
	visit = func(r *routefile.Retention) {
		path = append(path, r)
		place[r] = len(path)
		for _, n := range slices.Concat(r.After, r.Unless) {
			switch next := keeps[l.categoryOf(n)]; {
			case next == nil || next == r || done[next]:
			case place[next] == 0:
				visit(next)
			default:
				circle := path[place[next]-1:]
				names := make([]string, len(circle))
				for i, c := range circle {
					names[i], told[c] = c.Category.Text, true
				}
				l.error(n.Pos, "life-contradiction", "the lives of the categories %s end by events of each other, so each would be kept until the other is gone: have one of them end by events of its own",
					listed(names))
			}
		}
		path, place[r], done[r] = path[:len(path)-1], 0, true
	}
	for i := range l.table.file.Retention {
		if r := &l.table.file.Retention[i]; !done[r] {
			visit(r)
		}
	}
	return told
}
