package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

// patient is for what has to happen, on a busy machine.
const patient = 2 * time.Minute

// world is a database and the system that runs on it, with switches.
type world struct {
	*testing.T
	*system
	*switches
	clock  *clock
	random *rand.Rand
	lives  *int
}

// open opens a database until the test ends.
func open(t *testing.T, address string) *database {
	t.Helper()
	db, err := openDatabase(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// start runs a system until the test ends.
func start(t *testing.T, address string) world {
	t.Helper()
	return startOn(t, open(t, address))
}

func startOn(t *testing.T, db *database) world {
	t.Helper()
	c, faults := newClock(time.Now()), new(switches)
	s, err := newSystem(db, config{now: c.now, switches: faults, poll: demoPoll, leaseTTL: demoLease, logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	w := world{t, s, faults, c, rand.New(rand.NewPCG(1, 2)), new(int)} // always the same lives
	if err := db.events.InTx(t.Context(), func(tx *sql.Tx) error { return enterDirectory(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	return w
}

// newLife makes up a case, of a citizen who takes SMS and lives elsewhere.
func (w world) newLife() *life {
	w.Helper()
	*w.lives++
	l := newLife(w.random, "test", *w.lives)
	l.reference, l.version1 = fmt.Sprintf("GA-TEST-%04d", *w.lives), false
	l.citizen.sms, l.citizen.district = true, "Coronie"
	return l
}

// do has acts done about a case, one after the other, and does not wait for what follows.
func (w world) do(l *life, acts ...act) {
	w.Helper()
	for _, a := range acts {
		if err := w.act(w.Context(), l, a); err != nil {
			w.Fatal(err)
		}
	}
}

func (w world) act(ctx context.Context, l *life, a act) error {
	p := player{system: w.system, clock: w.clock}
	return p.act(ctx, planned{l, a})
}

// done has acts done, and waits until nothing follows from them any more.
func (w world) done(l *life, acts ...act) {
	w.Helper()
	w.do(l, acts...)
	w.settle()
}

// underReview brings a new case to where a handler has to decide.
func (w world) underReview() *life {
	w.Helper()
	l := w.newLife()
	w.done(l, apply, upload, assign, wizard, verify, evaluate("ELIGIBLE"))
	w.stands(l, stateUnderReview)
	return l
}

// accepted has the operator close the dead letter of what was dealt with in another way: there has to be one.
func (w world) accepted(consumer string) {
	w.Helper()
	if letters, err := newOperator(w.system, w.clock).accept(w.Context(), consumer); err != nil || len(letters) != 1 {
		w.Errorf("%d dead letters of %s were closed, %v, want 1", len(letters), consumer, err)
	}
}

// settle waits until nothing is on its way any more; retries are not waited for, but made.
func (w world) settle() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patient)
	defer cancel()
	if err := w.clock.settle(ctx, w.db); err != nil {
		w.Fatalf("there is still something on its way: %v", err)
	}
}

// stands checks where a case stands.
func (w world) stands(l *life, status string) {
	w.Helper()
	if got := w.texts(`SELECT status FROM cases WHERE case_id = $1`, l.caseID); len(got) != 1 || got[0] != status {
		w.Fatalf("case %s is at %q, want %q", l.reference, got, status)
	}
}

// eventually waits for a count.
func (w world) eventually(want int, query string, args ...any) {
	w.Helper()
	testkit.Eventually(w, patient, func() error {
		if n := w.count(query, args...); n != want {
			return fmt.Errorf("%s is %d, want %d", query, n, want)
		}
		return nil
	})
}

// exec runs a statement of a person.
func (w world) exec(statement string, args ...any) {
	w.Helper()
	if err := w.db.events.InTx(w.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(w.Context(), statement, args...)
		return err
	}); err != nil {
		w.Fatal(err)
	}
}

// texts returns the only column of a query, which must succeed.
func (w world) texts(query string, args ...any) []string {
	w.Helper()
	all, err := texts(w.Context(), w.db.read, query, args...)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

func (w world) count(query string, args ...any) int {
	w.Helper()
	n, err := count(w.Context(), w.db.read, query, args...)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// clean checks that the audit objects to nothing.
func (w world) clean() {
	w.Helper()
	if err := w.found().err(); err != nil {
		w.Errorf("the audit objects: %v", err)
	}
}

// found is what the audit objects to.
func (w world) found() findings {
	w.Helper()
	f, err := w.audit(w.Context(), w.clock.now())
	if err != nil {
		w.Fatal(err)
	}
	return f
}
