package eventingtest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

const (
	sentRetention       = 24 * time.Hour
	inboxRetention      = 10 * 24 * time.Hour
	deadLetterRetention = 30 * 24 * time.Hour
	day                 = 24 * time.Hour
)

func pruneTests[Tx any]() tests[Tx] {
	return tests[Tx]{
		"settled rows go after their retention":             pruneOutbox[Tx],
		"what is pending stays":                             prunePending[Tx],
		"inbox rows go after theirs":                        pruneInbox[Tx],
		"a delivery in trouble keeps what it needs":         pruneKeepsRetry[Tx],
		"an open dead letter keeps what it needs":           pruneKeepsDead[Tx],
		"a pending row keeps the inbox of its event":        pruneKeepsPending[Tx],
		"a sent row keeps the inbox of its event":           pruneKeepsSent[Tx],
		"a replay keeps its dead letter":                    pruneKeepsReplayed[Tx],
		"closed dead letters go after theirs":               pruneClosed[Tx],
		"open ones are discarded first":                     pruneExpires[Tx],
		"but not while something is parked behind":          pruneParked[Tx],
		"batches are bounded":                               pruneBatches[Tx],
		"batches of dead letters too":                       pruneBatchesOfDead[Tx],
		"one prunes at a time":                              pruneAlone[Tx],
		"another takes over from one that died":             pruneTakeover[Tx],
		"statistics count":                                  pruneStats[Tx],
		"an event of two consumers goes when both are done": pruneShared[Tx],
	}
}

// keeping sets the suite's retentions.
func keeping(cfg *eventing.ConsumerConfig) {
	cfg.Policy.InboxRetention, cfg.Policy.DeadLetterRetention = inboxRetention, deadLetterRetention
}

func (w *world[Tx]) prune() eventing.Pruned {
	w.Helper()
	p, err := eventing.NewPruner(w.db, eventing.PrunerConfig{
		SentRetention: sentRetention, BatchSize: 3, Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	n, err := p.PruneOnce(w.ctx)
	w.must(err)
	return n
}

// later moves the clock and prunes.
func (w *world[Tx]) later(d time.Duration) eventing.Pruned {
	w.Helper()
	w.clock.Advance(d)
	return w.prune()
}

func pruneOutbox[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	lost := order("lost", "")
	lost.Type = "order.lost"
	w.append(order("old", ""), lost)
	w.rest()
	w.clock.Advance(sentRetention / 2)
	w.append(order("new", ""))
	w.rest()
	w.equal("nothing goes before its time", w.later(sentRetention/2-time.Millisecond), eventing.Pruned{})
	w.clock.Advance(2 * time.Millisecond)
	w.equal("settled rows go after their retention", w.prune().Outbox, 1)
	w.outboxStatus("the old row is gone", "old")
	w.outboxStatus("a failed row stays as long as its dead letter is open", "lost", "failed")
	w.discard(dispatchTarget("lost"))
	w.equal("and then goes", w.prune().Outbox, 1)
	w.outboxStatus("the younger one stays", "new", "sent")
}

func prunePending[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	late := order("late", "")
	late.DueAt = w.clock.Now().Add(100 * day)
	w.append(late)
	w.must(w.db.InsertByHand(w.ctx, "hand", "hand", "order.placed", []byte(`{"payload":1}`)))
	w.equal("what has not been sent is never removed", w.later(99*day), eventing.Pruned{})
	w.clock.Advance(day)
	w.rest()
	got := c.effects()
	slices.Sort(got)
	w.equal("and goes when it is due", got, list("hand", "late"))
}

func pruneInbox[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.append(orders("", "e1", "e2")...)
	w.rest()
	w.equal("an inbox row stays as long as the policy says", w.later(inboxRetention-time.Millisecond).Inbox, 0)
	w.equal("and then goes", w.later(2*time.Millisecond).Inbox, 2)
	w.equal("all of them", w.stats().Inbox, int64(0))
}

func pruneKeepsRetry[Tx any](w *world[Tx]) {
	a := w.consumer("billing", keeping)
	b := w.consumer("mail", func(cfg *eventing.ConsumerConfig) {
		keeping(cfg)
		cfg.Policy.DeadLetterRetention = 100 * day
	})
	b.fail(eventing.RetryAfter(40*day, errBusy), "e1")
	w.append(order("e1", ""))
	w.rest()
	w.equal("while a delivery of the event is in trouble, its outbox row and inbox rows stay", w.later(39*day), eventing.Pruned{})
	b.heal()
	w.clock.Advance(day)
	w.rest()
	w.effects("the retry has all it needs", b, "e1")
	w.effects("and the other consumer does not run again", a, "e1")
	got := w.prune()
	w.equal("with the trouble, the reason to keep them ends", []int{got.Outbox, got.Inbox}, []int{1, 1})
}

func pruneKeepsDead[Tx any](w *world[Tx]) {
	a, b := w.consumer("billing", keeping), w.consumer("mail", keeping)
	b.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.equal("an open dead letter keeps outbox and inbox rows of its event", w.later(deadLetterRetention-day), eventing.Pruned{})
	b.heal()
	w.replay(target("e1", b))
	w.rest()
	w.effects("a late replay does not run where the event was processed", a, "e1")
	w.effects("and runs where it failed", b, "e1")
	w.status("and closes", target("e1", b), eventing.StatusClosed, eventing.Resolved)
}

func pruneKeepsPending[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	w.append(order("e1", ""))
	w.rest()
	w.equal("a sent row can be sent again", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 1)
	w.equal("a pending outbox row keeps the inbox rows of its event", w.later(2*inboxRetention), eventing.Pruned{})
	w.rest()
	w.effects("so that what is sent again is recognised", c, "e1")
	w.equal("and then they go", w.later(2*day), eventing.Pruned{Outbox: 1, Inbox: 1})
}

func pruneKeepsSent[Tx any](w *world[Tx]) {
	c := w.consumer("billing", func(cfg *eventing.ConsumerConfig) {
		cfg.Policy.InboxRetention, cfg.Policy.Retry.Base = time.Hour, time.Second
	})
	w.append(order("e1", ""))
	w.rest()
	w.equal("an inbox row outlives its retention while a sent row could bring the event back", w.later(2*time.Hour), eventing.Pruned{})
	w.equal("it can", w.requeue(eventing.RequeueFilter{EventIDs: []string{"e1"}}, false), 1)
	w.rest()
	w.effects("and is recognised", c, "e1")
}

func pruneKeepsReplayed[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(deadLetterRetention - time.Hour)
	c.heal()
	w.replay(target("e1", c))
	w.equal("a dead letter that was replayed on its last day is not given up on its way", w.later(2*time.Hour).Expired, 0)
	w.rest()
	w.effects("it runs", c, "e1")
}

func pruneClosed[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.clock.Advance(deadLetterRetention / 2)
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.equal("a closed dead letter stays as long as the policy says, from its closing",
		w.later(deadLetterRetention-time.Millisecond).DeadLetters, 0)
	w.equal("and then goes", w.later(2*time.Millisecond).DeadLetters, 1)
	w.nothingDead("it is not listed any more")
	n, err := w.db.ReplayBySQL(w.ctx, "e1")
	w.must(err)
	w.equal("a dead-letter event without any consumer is removed too", n, 0)
}

func pruneExpires[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, "e1")
	w.append(order("e1", ""))
	w.rest()
	w.equal("an open dead letter stays as long as the policy says", w.later(deadLetterRetention-time.Millisecond).Expired, 0)
	got := w.later(2 * time.Millisecond)
	w.equal("then it is discarded", []int{got.Expired, got.DeadLetters}, []int{1, 0})
	w.status("by a discard like any other", target("e1", c), eventing.StatusClosed, eventing.Discarded)
	w.deliveries("which removes the delivery", 0, 0, 0)
	dl := w.deadLetter(target("e1", c))
	said := dl.Reason == eventing.ReasonExpired || slices.ContainsFunc(dl.Acts, func(a eventing.Act) bool {
		return strings.Contains(a.Act+a.Note, string(eventing.ReasonExpired))
	})
	w.equal("and it says that it expired", said, true)
	w.equal("it is kept for a while, to be seen", dl.ExpiresAt.Before(w.clock.Now().Add(eventing.ActRetention)), false)
}

func pruneParked[Tx any](w *world[Tx]) {
	c := w.consumer("ledger", func(cfg *eventing.ConsumerConfig) {
		ordered(cfg)
		keeping(cfg)
	})
	c.fail(errHopeless, "e1")
	w.append(orders("K", "e1", "e2")...)
	w.rest()
	w.equal("with something parked behind it, a dead letter does not expire", w.later(3*deadLetterRetention).Expired, 0)
	w.rest()
	w.effects("nor does anything pass it", c)
	c.heal()
	w.replay(target("e1", c))
	w.rest()
	w.effects("it can still be replayed", c, "e1", "e2")
}

func pruneBatches[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.append(orders("", "e1", "e2", "e3", "e4", "e5", "e6", "e7")...)
	w.rest()
	w.clock.Advance(2 * inboxRetention)
	got, err := w.db.Prune(w.ctx, eventing.PruneRequest{Now: w.clock.Now(), SentBefore: w.clock.Now().Add(-day), Limit: 2})
	w.must(err)
	w.equal("one batch removes no more than it may of each table", got.Outbox <= 2 && got.Inbox <= 2 && got.Outbox+got.Inbox > 0, true)
	rest := w.prune()
	w.equal("a round removes all, batch by batch", []int{got.Outbox + rest.Outbox, got.Inbox + rest.Inbox}, []int{7, 7})
}

func pruneBatchesOfDead[Tx any](w *world[Tx]) {
	ids := []string{"e1", "e2", "e3", "e4", "e5"}
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, ids...)
	w.append(orders("", ids...)...)
	w.rest()
	c.heal()
	for _, id := range ids {
		w.replay(target(id, c))
	}
	w.rest()
	w.clock.Advance(2 * deadLetterRetention)
	got, err := w.db.Prune(w.ctx, eventing.PruneRequest{Now: w.clock.Now(), SentBefore: w.clock.Now().Add(-day), Limit: 2})
	w.must(err)
	w.equal("one batch removes no more dead letters than it may", got.DeadLetters, 2)
	w.equal("a round removes all, batch by batch", w.prune().DeadLetters, 3)
}

// pruning is a store on which something happens in the middle of pruning; after that, the
// process may die.
type pruning[Tx any] struct {
	Database[Tx]
	meanwhile func()
	dies      bool
}

func (p *pruning[Tx]) Prune(ctx context.Context, r eventing.PruneRequest) (eventing.Pruned, error) {
	p.meanwhile()
	if p.dies {
		return eventing.Pruned{}, ErrCrash
	}
	return p.Database.Prune(ctx, r)
}

func (p *pruning[Tx]) ReleaseLeases(ctx context.Context, scope, holder string, partitions []int) error {
	if p.dies {
		return ErrCrash
	}
	return p.Database.ReleaseLeases(ctx, scope, holder, partitions)
}

// pruneBeside has one pruner at work while another tries, and returns what the first
// removed.
func pruneBeside[Tx any](w *world[Tx], dies bool) (int, error) {
	w.Helper()
	w.consumer("billing", keeping)
	w.append(orders("", "e1", "e2", "e3", "e4")...) // more than one batch
	w.rest()
	w.clock.Advance(2 * inboxRetention)
	store := &pruning[Tx]{w.db, func() {
		w.equal("while one pruner is at work, another removes nothing", w.prune(), eventing.Pruned{})
	}, dies}
	p, err := eventing.NewPruner(store, eventing.PrunerConfig{SentRetention: sentRetention, BatchSize: 3, Now: w.clock.Now})
	w.must(err)
	n, err := p.PruneOnce(w.ctx)
	return n.Outbox, err
}

func pruneAlone[Tx any](w *world[Tx]) {
	n, err := pruneBeside(w, false)
	w.must(err)
	w.equal("the one removes all", n, 4)
	w.append(order("e5", ""))
	w.rest()
	w.equal("when it is done, the other can", w.later(2*inboxRetention).Outbox, 1)
}

func pruneTakeover[Tx any](w *world[Tx]) {
	n, err := pruneBeside(w, true)
	w.equal("a pruner dies", []any{n, errors.Is(err, ErrCrash)}, []any{0, true})
	w.equal("its lease outlives it", w.later(time.Minute-time.Millisecond), eventing.Pruned{})
	w.equal("but not for long", w.later(time.Millisecond).Outbox, 4)
}

func pruneStats[Tx any](w *world[Tx]) {
	c := w.consumer("billing", keeping)
	c.fail(errHopeless, "e1")
	c.fail(errBusy, "e2")
	start := w.clock.Now()
	w.append(orders("", "e1", "e2", "e3")...)
	w.rest()
	w.clock.Advance(time.Second)
	w.append(order("e4", ""))
	s := w.stats()
	w.equal("outbox rows are counted by status", []int64{s.Outbox["pending"], s.Outbox["sent"]}, []int64{1, 3})
	w.equal("inbox rows are counted", s.Inbox, int64(1))
	w.equal("dead letters are counted by status", s.DeadLetters["pending"], int64(1))
	w.deliveries("deliveries are counted by state", 1, 0, 1)
	w.equal("the oldest pending row is known", s.OldestPending.Equal(w.clock.Now()), true)
	w.equal("the oldest sent row is known", s.OldestSent.Equal(start), true)
}

func pruneShared[Tx any](w *world[Tx]) {
	w.consumer("billing", keeping)
	w.consumer("mail", func(cfg *eventing.ConsumerConfig) {
		keeping(cfg)
		cfg.Policy.InboxRetention = 2 * inboxRetention
	})
	w.append(order("e1", ""))
	w.rest()
	w.equal("each consumer's inbox row has its own time", w.later(inboxRetention+time.Millisecond).Inbox, 1)
	w.equal("each consumer's inbox row has its own time", w.later(inboxRetention).Inbox, 1)
}
