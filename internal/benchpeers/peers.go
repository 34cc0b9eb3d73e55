package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"
)

// contestant does one thing in one way.
type contestant struct {
	group string
	name  string
	// run prepares, then measures: it returns how long the measured part took.
	run func(ctx context.Context, a *arena) (time.Duration, error)
}

var (
	groupDispatch1   = group{name: "dispatch-1", what: "Dispatch, Postgres to Redis, 1 worker"}
	groupDispatch2   = group{name: "dispatch-2", what: "Dispatch, Postgres to Redis, 2 workers"}
	groupAppend      = group{name: "append", what: fmt.Sprintf("Append, a transaction each, %d writers", writers), byTime: true}
	groupAppendBatch = group{name: "append-batch", what: fmt.Sprintf("Append, %d a transaction, 1 writer", batchSize), byTime: true}
)

func peerGroups() []group {
	return []group{groupDispatch1, groupDispatch2, groupAppend, groupAppendBatch}
}

// contestants returns all of them; the first of a group is its baseline.
func contestants() []contestant {
	return []contestant{
		{groupDispatch1.name, "bare loop, UPDATE", bareLoop(1, markSent)},
		{groupDispatch1.name, "bare loop, DELETE", bareLoop(1, deleteSent)},
		{groupDispatch1.name, "waybill, rows kept", dispatcher(1, false)},
		{groupDispatch1.name, "waybill, DeleteSent", dispatcher(1, true)},
		{groupDispatch1.name, "watermill forwarder", watermillForwarder},
		{groupDispatch1.name, "oagudo/outbox", oagudoReader},
		{groupDispatch2.name, "bare loop, UPDATE", bareLoop(2, markSent)},
		{groupDispatch2.name, "bare loop, DELETE", bareLoop(2, deleteSent)},
		{groupDispatch2.name, "waybill, rows kept", dispatcher(2, false)},
		{groupDispatch2.name, "waybill, DeleteSent", dispatcher(2, true)},
		{groupAppend.name, "bare INSERT", bareInsert},
		{groupAppend.name, "waybill, pgx", appendPgx},
		{groupAppend.name, "waybill, database/sql", appendSQL},
		{groupAppend.name, "river InsertTx", riverInsert},
		{groupAppend.name, "watermill-sql publisher", watermillPublish},
		{groupAppend.name, "oagudo/outbox writer", oagudoWrite},
		{groupAppendBatch.name, "bare COPY", bareCopy},
		{groupAppendBatch.name, "waybill, pgx", appendBatchPgx},
		{groupAppendBatch.name, "river InsertManyFastTx", riverInsertMany(true)},
		{groupAppendBatch.name, "river InsertManyTx", riverInsertMany(false)},
	}
}

func baselines(list []contestant) map[string]string {
	first := map[string]string{}
	for _, c := range list {
		if first[c.group] == "" {
			first[c.group] = c.name
		}
	}
	return first
}

func runPeers(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	flags, jsonFile := newFlags("peers", progress)
	rounds := flags.Int("rounds", 5, "how often each contestant runs")
	n := flags.Int("events", 60_000, "events of each run")
	only := flags.String("only", "", "run only those with this `text` in the group (dispatch-1, dispatch-2, append, append-batch) or the name")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := positive(flags, "rounds", "events"); err != nil {
		return err
	}
	var list []contestant
	for _, c := range contestants() {
		if strings.Contains(c.group+", "+c.name, *only) {
			list = append(list, c)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("-only: %q is in no name", *only)
	}
	results, err := comparePeers(ctx, list, *rounds, *n, progress)
	if err != nil {
		return err
	}
	return writeReport(out, *jsonFile, results, func(w io.Writer) error {
		return writeTable(w, groupsOf(list), results)
	})
}

func groupsOf(list []contestant) []group {
	names := baselines(list)
	var groups []group
	for _, g := range peerGroups() {
		if names[g.name] != "" {
			groups = append(groups, g)
		}
	}
	return groups
}

// comparePeers interleaves the contestants, so that what slows the machine for a
// while slows all of them. Those of a group follow each other, in each round in
// another order, so that nobody always comes after the same one.
func comparePeers(ctx context.Context, list []contestant, rounds, n int, progress *log.Logger) (results []result, err error) {
	events, err := newEvents(n)
	if err != nil {
		return nil, err
	}
	s, err := startServers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var measured rates
	for _, c := range list { // the tables keep the order of the list
		measured.declare(c.group, c.name)
	}
	for round := range rounds {
		for _, i := range shuffled(len(list), func(i int) string { return list[i].group }) {
			c := list[i]
			took, err := s.runOnce(ctx, c, events)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.group, c.name, err)
			}
			rate := measured.add(c.group, c.name, n, took)
			progress.Printf("round %d of %d: %s, %s: %.0f events/s", round+1, rounds, c.group, c.name, rate)
		}
	}
	return measured.results(groupsOf(list), baselines(list)), nil
}

// shuffled returns the numbers up to n, each group's together.
func shuffled(n int, group func(i int) string) []int {
	out := rand.Perm(n) //nolint:gosec // G404: an order is no secret
	slices.SortStableFunc(out, func(a, b int) int { return strings.Compare(group(a), group(b)) })
	return out
}

// runTimeout bounds one run, its preparation included.
const runTimeout = 5 * time.Minute

func (s *servers) runOnce(ctx context.Context, c contestant, events []event) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, errors.New("the run takes too long"))
	defer cancel()
	a, err := s.open(ctx, events)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	return c.run(ctx, a)
}

// settle leaves nothing of the preparation to be done while the clock runs:
// connections, dead rows, statistics, dirty pages, garbage.
func (a *arena) settle(ctx context.Context) error {
	if err := a.warm(ctx); err != nil {
		return err
	}
	for _, statement := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := a.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	runtime.GC()
	return nil
}

// waitDrained returns once Redis has confirmed all events and pending says that
// no row is left. Until Redis has, the database is not asked.
func (a *arena) waitDrained(ctx context.Context, published <-chan struct{}, pending string) error {
	if err := wait(ctx, published); err != nil {
		return err
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		left := false
		if err := a.pool.QueryRow(ctx, pending).Scan(&left); err != nil {
			return fmt.Errorf("ask what is pending: %w", err)
		}
		if !left {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
