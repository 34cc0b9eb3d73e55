package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

var (
	tenants      = []string{"aurora", "boreal", "cascade"}
	stationNames = []string{"s1", "s2", "s3", "s4"}
)

// price is the tariff of a station as it should be, in cents per kWh.
type price struct {
	tenant, station string
	cents           int64
}

// The two stations that give trouble at first.
var (
	forgotten = price{"aurora", "s3", 31} // nobody has entered it
	mistyped  = price{"boreal", "s2", 28} // entered with a minus
)

// options are what the command line says.
type options struct {
	store   string
	windows int // of each station
	timeout time.Duration
}

// demonstrate runs the story and tells it. It returns nil only if, in the end, each
// window has led to exactly one settlement.
func demonstrate(ctx context.Context, o options, out io.Writer, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done after %v; give it more time with -timeout", o.timeout))
	defer cancel()
	err := play(ctx, o, out, logger)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func play(ctx context.Context, o options, out io.Writer, logger *slog.Logger) error {
	db, err := openDatabase(ctx, o.store)
	if err != nil {
		return err
	}
	s, err := newSystem(db.events, config{
		settlement: eventing.Policy{Retry: eventing.RetryPolicy{MaxAttempts: 3, Base: 200 * time.Millisecond}},
		logger:     logger,
	})
	if err == nil {
		d := demo{options: o, db: db, system: s, report: report{out, db.read}}
		err = s.during(ctx, d.run)
	}
	return errors.Join(err, db.close())
}

// demo is the story.
type demo struct {
	options
	report

	db     *database
	system *system
}

func (d demo) run(ctx context.Context) error {
	count := len(tenants) * len(stationNames) * d.windows
	d.say("%d tenants with %d stations each, %d windows of each station: %d windows. Database: %s", len(tenants), len(stationNames), d.windows, count, d.db.name)

	d.step("Stations close their windows: one transaction each, the window's row and its event")
	d.say("%s/%s has no tariff yet; that of %s/%s was entered as -%d ct.", forgotten.tenant, forgotten.station, mistyped.tenant, mistyped.station, mistyped.cents)
	if err := d.enterTariffs(ctx); err != nil {
		return err
	}
	if err := d.closeWindows(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := waitUntilQuiet(ctx, d.db.read); err != nil {
		return err
	}
	d.step(fmt.Sprintf("%.1f s later, nothing is under way any more", time.Since(began).Seconds()))
	if err := errors.Join(d.showWork(ctx), d.showWaits(ctx), d.showChain(ctx), d.showTenants(ctx), d.showDeadLetters(ctx), d.showOutbox(ctx)); err != nil {
		return err
	}

	d.step("The operator mends the tariffs and sends the dead letters again, by plain SQL")
	if err := d.mendAndReplay(ctx); err != nil {
		return err
	}
	if err := waitUntilQuiet(ctx, d.db.read); err != nil {
		return err
	}
	d.step("After the replay")
	if err := errors.Join(d.showTenants(ctx), d.showDeadLetters(ctx), d.showOutbox(ctx)); err != nil {
		return err
	}
	found, err := audit(ctx, d.db.read)
	if err = errors.Join(err, found.err()); err != nil {
		return err
	}
	d.say("\nOK: each window led to exactly one settlement.")
	return nil
}

// enterTariffs replaces what an earlier run on the same database has left.
func (d demo) enterTariffs(ctx context.Context) error {
	return d.db.events.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM tariffs`); err != nil {
			return err
		}
		for i, tenant := range tenants {
			for k, station := range stationNames {
				p := price{tenant, station, int64(24 + 2*i + k)}
				switch {
				case tenant == forgotten.tenant && station == forgotten.station:
					continue
				case tenant == mistyped.tenant && station == mistyped.station:
					p.cents = -mistyped.cents
				}
				if _, err := tx.ExecContext(ctx, setTariff, p.tenant, p.station, p.cents); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (d demo) closeWindows(ctx context.Context) error {
	for n := range d.windows {
		for i, tenant := range tenants {
			for k, station := range stationNames {
				w := window{eventing.NewID(), tenant, station, samples(n + 3*i + 5*k)}
				if err := d.system.closeWindow(ctx, w); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// samples makes up what a station has measured, in watt-hours.
func samples(n int) []int64 {
	made := make([]int64, 6)
	for i := range made {
		made[i] = int64(180 + (n*37+i*53)%240)
	}
	return made
}

func (d demo) mendAndReplay(ctx context.Context) error {
	for _, p := range []price{forgotten, mistyped} {
		d.code(shown(setTariff, p.tenant, p.station, p.cents))
	}
	if err := d.db.events.InTx(ctx, func(tx *sql.Tx) error {
		for _, p := range []price{forgotten, mistyped} {
			if _, err := tx.ExecContext(ctx, setTariff, p.tenant, p.station, p.cents); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	ids, err := texts(ctx, d.db.read, openDeadLetters)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return errors.New("there are no dead letters, and there should be some")
	}
	d.code(shown(replayOne, ids[0]))
	if more := len(ids) - 1; more > 0 {
		d.say("… and the same for the other %d.", more)
	}
	return replay(ctx, d.db.events, ids)
}
