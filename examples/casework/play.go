package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// player plays a plan on a system.
type player struct {
	*system
	*plan
	clock *clock
	first time.Time
}

// play plays all days. After each it waits until the engines have done what follows, so that in the end all is as
// planned.
func (p *player) play(ctx context.Context, told func(day time.Time, d *day)) error {
	if err := p.db.events.InTx(ctx, func(tx *sql.Tx) error { return enterDirectory(ctx, tx) }); err != nil {
		return err
	}
	for n, d := range p.days {
		morning := opening(p.first, n)
		p.clock.skip(morning.Sub(p.clock.now()))
		if err := p.playDay(ctx, n, d); err != nil {
			return fmt.Errorf("%s: %w", morning.Format(time.DateOnly), err)
		}
		told(morning, d)
	}
	return nil
}

func (p *player) playDay(ctx context.Context, n int, d *day) error {
	for i, batch := range d.batches() {
		if err := p.settlePayments(traced(ctx), batch[0].batchID, batch, (n+i)%3 == 0, p.clock.now()); err != nil {
			return err
		}
	}
	for _, a := range d.acts {
		if err := p.act(traced(ctx), a); err != nil {
			return fmt.Errorf("case %s (%s): %w", a.reference, a.story, err)
		}
	}
	if len(d.payments) > 0 {
		if err := p.submit(traced(ctx), p.batchID(n), d.payments, p.clock.now()); err != nil {
			return err
		}
	}
	return p.settle(ctx)
}

// settle waits until the engines have done what follows, also from what the channels report about their letters.
func (p *player) settle(ctx context.Context) error {
	if err := p.clock.settle(ctx, p.db); err != nil {
		return err
	}
	if err := p.collectReports(ctx, p.clock.now()); err != nil {
		return err
	}
	return p.clock.settle(ctx, p.db)
}

// batches are the answers of a day, by batch.
func (d *day) batches() (all [][]subemaAnswer) {
	at := map[string]int{}
	for _, a := range d.answers {
		i, known := at[a.batchID]
		if !known {
			i, at[a.batchID] = len(all), len(all)
			all = append(all, nil)
		}
		all[i] = append(all[i], a)
	}
	return all
}

// act does what somebody does, and tells of it: one commit.
func (p *player) act(ctx context.Context, a planned) error {
	return p.outbox.InTx(ctx, func(tx *sql.Tx) error {
		events, err := a.act(ctx, tx, a.life, p.clock.now())
		if err != nil {
			return err
		}
		return p.outbox.Append(ctx, tx, events...)
	})
}

// traced begins a trace, as whoever takes a request does.
func traced(ctx context.Context) context.Context {
	var ids [24]byte
	_, _ = rand.Read(ids[:]) // never fails
	return eventing.WithTraceContext(ctx, "00-"+hex.EncodeToString(ids[:16])+"-"+hex.EncodeToString(ids[16:])+"-01", "")
}
