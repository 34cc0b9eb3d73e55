package eventing

import (
	"slices"
	"time"
)

// lookout knows where in a partition to look for pending rows, and how many to ask for.
//
// Settled rows stay in the index of the pending ones until the database has cleaned up,
// which it cannot while some transaction is old, and passing over a million of them takes a
// second. So a look begins at a base up to which there is nothing pending any more. That
// needs care: a row that turns up behind the base would be overtaken by the next one of its
// key. It may be one of a transaction that drew its place in the sequence early and commits
// late. So the base follows the sequence only to where it was when all transactions that were
// under way have ended since, and a look has found nothing of theirs. And while rows are passed
// over that may be in order later (delayed, or held by their key), there is no base.
//
// A look need not pass over what is under way either. So it begins at a front up to which
// whatever is pending has been taken by this dispatcher: as long as all of that goes out.
//
// A base that holds once holds for ever, so it is recorded with the lease, and whoever has
// the partition next begins there.
//
// A look at everything, now and then, finds what somebody has made pending by hand.
type lookout struct {
	batch  int
	limits map[int]int   // by partition
	base   map[int]int64 // by partition: nothing up to here is pending, or will be
	front  map[int]int64 // by partition: what is pending up to here is under way
	tokens map[int]int64 // by partition: of the lease whose base has been taken over
	turn   int
	behind bool // the last look found as many rows as it had asked for

	next    *sight    // what the base will follow
	asked   time.Time // when the writers were asked for
	whole   time.Time // when a look at everything ended
	cost    time.Duration
	skipped bool // the last look was not at everything
	fresh   bool // nobody has looked, or asked for a look at everything

	density map[int]float64 // by partition: of its rows among all, in a backlog
}

// sight is the highest Seq at a time, and which transactions could still add rows up to it.
type sight struct {
	drawn   int64
	writers []string
	ended   bool // all of them, before the next look began
}

const (
	costFactor  = 20                     // a look at everything may take one part in so many of the time
	behindPause = 500 * time.Millisecond // between them, while there is a backlog
	// maxWholePause is for a look that took long as the process was stopped.
	maxWholePause = 5 * time.Minute
	firstCost     = 250 * time.Millisecond // assumed before it is known
	// writersPause is between two questions for the transactions that are under way.
	writersPause = 10 * time.Millisecond
)

func newLookout(batch int) *lookout {
	return &lookout{batch: batch, limits: map[int]int{}, base: map[int]int64{}, front: map[int]int64{}, tokens: map[int]int64{},
		density: map[int]float64{}, fresh: true}
}

// takeOver begins where the last holder of a partition was.
func (l *lookout) takeOver(lease Lease) {
	if l.tokens[lease.Partition] == lease.Token {
		return
	}
	l.tokens[lease.Partition] = lease.Token
	delete(l.front, lease.Partition)
	if lease.Base <= l.base[lease.Partition] {
		return
	}
	l.base[lease.Partition] = lease.Base
	if l.fresh {
		l.fresh, l.whole, l.cost = false, time.Now(), firstCost
	}
}

// due returns when a look at everything is affordable again.
func (l *lookout) due() time.Time {
	pause := min(costFactor*l.cost, maxWholePause)
	if l.behind {
		pause = max(pause, behindPause)
	}
	return l.whole.Add(pause)
}

// wait returns when the next look should be, if the last one found nothing: after the
// pause, or when one at everything is affordable if that one was not.
func (l *lookout) wait(pause time.Duration) time.Duration {
	if !l.skipped {
		return pause
	}
	return min(pause, max(time.Until(l.due()), time.Millisecond))
}

// everything reports whether the next look is to be at everything.
func (l *lookout) everything() bool { return !time.Now().Before(l.due()) }

// looked records a look, and what it cost.
func (l *lookout) looked(everything bool, cost time.Duration) {
	l.skipped = !everything
	if everything {
		l.whole, l.cost = time.Now(), cost
	}
}

// request asks for rows of the partitions, total in all. flying are those in flight, by
// partition, of which there may not be too many if bounded. asked is how many partitions
// there was enough for.
func (l *lookout) request(partitions []int, everything bool, total int, flying map[int][]int64, bounded bool) (r ClaimRequest, asked int) {
	for i := range partitions {
		p := partitions[(i+l.turn)%len(partitions)]
		c := PartitionClaim{Partition: p, After: l.base[p], Exclude: flying[p], Limit: l.limits[p]}
		switch {
		case everything:
			c.After = 0
		case !bounded: // else they need not go out in their order
			c.After = max(c.After, l.front[p])
		}
		if c.Limit == 0 {
			c.Limit = max(1, l.batch/len(partitions))
		}
		c.Limit = min(c.Limit, MaxPartitionClaim, total)
		if c.Limit > 0 {
			asked++
		}
		if bounded {
			c.Limit = min(c.Limit, max(0, max(1, l.batch/8)-len(flying[p])))
		}
		total -= c.Limit
		r.Partitions = append(r.Partitions, c)
	}
	l.turn += asked // so that everyone's turn comes
	if now := time.Now(); now.Sub(l.asked) >= writersPause {
		l.asked, r.Writers = now, true
	}
	return r, asked
}

// learn takes in what a look has found. It reports whether there may be more at once, and
// whether the look has to be made again, at everything.
func (l *lookout) learn(r ClaimRequest, c Claimed) (more, again bool) {
	got := foundBy(c.Rows)
	if l.misled(got) {
		l.forget()
	}
	if c.Unsure {
		skipped := slices.ContainsFunc(r.Partitions, func(p PartitionClaim) bool { return p.After > 0 })
		l.forget()
		if skipped {
			return false, true
		}
	} else {
		l.advance(r, c, got)
	}
	return l.share(r, got), false
}

// misled reports whether there are rows up to the base: somebody has made them pending by
// hand, or has set the sequence back.
func (l *lookout) misled(got map[int]found) bool {
	for p, f := range got {
		if f.first <= l.base[p] {
			return true
		}
	}
	return false
}

// advance moves the base after what had been drawn when the transactions were under way
// that have ended since, but not past anything that is still pending.
func (l *lookout) advance(r ClaimRequest, c Claimed, got map[int]found) {
	if l.next != nil && l.next.ended {
		for _, p := range r.Partitions {
			if p.Limit == 0 { // nobody has looked
				continue
			}
			base, front := l.next.drawn, l.next.drawn
			if g := got[p.Partition]; g.n > 0 {
				base = min(base, g.first-1)
				if g.n >= p.Limit {
					front = min(front, g.last)
				}
			}
			for _, seq := range p.Exclude {
				base = min(base, seq-1)
			}
			l.base[p.Partition] = max(l.base[p.Partition], base)
			l.front[p.Partition] = max(l.front[p.Partition], front)
		}
		l.next = nil
	}
	switch {
	case !r.Writers:
	case l.next == nil:
		l.next = &sight{drawn: c.Drawn, writers: c.Writers, ended: len(c.Writers) == 0}
	default:
		l.next.ended = !slices.ContainsFunc(l.next.writers, func(w string) bool { return slices.Contains(c.Writers, w) })
	}
}

// retreat has the next look find again what did not go out.
func (l *lookout) retreat() { clear(l.front) }

// share learns how many rows to ask for next: twice as many where there were as many as
// asked for, within the batch. It reports whether any partition may have more.
func (l *lookout) share(r ClaimRequest, got map[int]found) (more bool) {
	least := max(1, l.batch/(4*max(1, len(r.Partitions))))
	total := 0
	full := map[int]found{}
	for _, p := range r.Partitions {
		f := got[p.Partition]
		switch {
		case p.Limit == 0: // nobody looked
		case f.n >= p.Limit:
			l.limits[p.Partition] = 2 * p.Limit
			more = true
			if f.last > f.first {
				full[p.Partition] = f
			}
		default:
			l.limits[p.Partition] = max(f.n, least)
		}
		total += l.limits[p.Partition]
	}
	if total > l.batch {
		for _, p := range r.Partitions {
			l.limits[p.Partition] = max(least, l.limits[p.Partition]*l.batch/total)
		}
		l.align(full)
	}
	l.behind = more
	return more
}

// found is what was found in a partition.
type found struct {
	n           int
	first, last int64
}

// foundBy counts rows, which are in the order of Seq, by partition.
func foundBy(rows []OutboxRow) map[int]found {
	got := map[int]found{}
	for i := range rows {
		f := got[rows[i].Partition]
		if f.n == 0 {
			f.first = rows[i].Seq
		}
		f.n, f.last = f.n+1, rows[i].Seq
		got[rows[i].Partition] = f
	}
	return got
}

// align shares out what is asked for of partitions with a backlog, so that all of them
// come to the same Seq: rows that lie together are read together then.
func (l *lookout) align(full map[int]found) {
	if len(full) < 2 {
		return
	}
	var rows, density, place float64 // density is how many of all rows are of a partition
	for p, f := range full {
		d := float64(f.n-1) / float64(f.last-f.first)
		if before := l.density[p]; before > 0 {
			d = (3*before + d) / 4
		}
		l.density[p] = d
		rows += float64(l.limits[p])
		density += d
		place += d * float64(f.last)
	}
	target := (rows + place) / density
	share, sum := make(map[int]float64, len(full)), 0.0
	for p, f := range full {
		share[p] = max(l.density[p]*(target-float64(f.last)), 0)
		sum += share[p]
	}
	for p := range full {
		l.limits[p] = min(max(int(share[p]*rows/sum), 2), MaxPartitionClaim)
	}
}

// forget has the next look be at everything.
func (l *lookout) forget() {
	clear(l.base)
	clear(l.front)
	clear(l.density)
	l.next, l.whole, l.cost, l.fresh = nil, time.Time{}, 0, false
}
