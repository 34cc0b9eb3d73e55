package pgstore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqltest"
)

var kinds = []kind{
	{name: "a serialization failure", strike: raise("40001"), typed: eventing.ErrSerialization},
	{name: "a deadlock", strike: raise("40P01"), typed: eventing.ErrSerialization},
	{name: "collisions without end", strike: raise("40001"), typed: eventing.ErrSerialization, always: true},
	{name: "a deadlock, and a rollback that breaks", strike: raise("40P01"), typed: eventing.ErrSerialization, beside: true},
	{name: "a terminated connection", strike: terminate, typed: eventing.ErrUnavailable},
	{name: "one terminated when the statement was executed", strike: terminateAfter, typed: eventing.ErrUnavailable, after: true},
	{name: "a broken connection", strike: cut, typed: eventing.ErrUnavailable},
	{name: "one broken when the statement was executed", strike: cutAfter, typed: eventing.ErrUnavailable, after: true},
}

// Every operation of both stores meets every kind of fault at every one of its
// statements, BEGIN and COMMIT included. It succeeds all the same, or says by its error
// which kind it was; then it is done again. In the end all is as without the fault:
// nothing twice, nothing missing. Without WAYBILL_SOAK, it is a sample.
func TestCrashOfEachStatement(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		strikeAll(t, newRig(t, take(t), inHaste), operations[pgx.Tx](), 0)
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		strikeAll(t, newSQLRig(t, take(t), inHaste), operations[*sql.Tx](), 1)
	})
}

// soak: take all, and the time for it.
func soak() bool { return os.Getenv("WAYBILL_SOAK") != "" }

// sample is how many statements there are to one that is struck.
const sample = 11

func strikeAll[Tx any](t *testing.T, r rig[Tx], all []operation[Tx], offset int) {
	t.Helper()
	runs, statements := 0, map[string]bool{}
	for i, op := range all {
		t.Run(op.name, func(t *testing.T) {
			s := newSubject(t, r, op)
			for sql := range s.statements {
				statements[sql] = true
			}
			for j, k := range kinds {
				if k.always && op.insists {
					continue
				}
				for n := 1; n <= s.count; n++ {
					lost := k.after && n == s.count // mostly a COMMIT of which nobody hears
					if soak() || lost || (n+i+j+offset)%sample == 0 {
						runs++
						s.strike(k, n)
					}
				}
			}
		})
	}
	t.Logf("%d operations, %d different statements, %d faults", len(all), len(statements), runs)
}

// subject is an operation, and what comes of it without a fault.
type subject[Tx any] struct {
	work[Tx]
	rig    rig[Tx]
	op     operation[Tx]
	count  int
	answer any
	before []string
	after  []string

	statements map[string]bool
}

func newSubject[Tx any](t *testing.T, r rig[Tx], op operation[Tx]) *subject[Tx] {
	t.Helper()
	s := &subject[Tx]{work: work[Tx]{T: t, db: r.open(), plain: r.plain}, rig: r, op: op}
	s.exec(empty)
	op.prepare(s.work)
	s.exec(copyAll("public", "kept"))
	s.rows, s.before = s.claimed(), s.state()
	r.faulty.arm(kind{}, 0)
	answer, err := op.do(r.faulty.context(s.background()), s.work)
	if err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	s.answer, s.after = answer, s.state()
	if _, s.count = r.faulty.disarm(); s.count == 0 {
		t.Fatal("the operation runs no statement")
	}
	s.statements = r.faulty.seen()
	return s
}

// strike does the operation with a fault at its nth statement.
func (s *subject[Tx]) strike(k kind, n int) {
	s.Helper()
	s.exec(copyAll("kept", "public"))
	s.db = s.rig.open()
	s.rig.faulty.arm(k, n)
	answer, err := s.op.do(s.rig.faulty.context(s.background()), s.work)
	hit, _ := s.rig.faulty.disarm()
	if hit == nil {
		return // one fewer than the first time: whether to notify depends on the clock
	}
	where := fmt.Sprintf("%s at statement %d, %s", k.name, n, firstLine(hit.sql))
	own := hit.sql == sqltest.InsertEffect // an error of the caller's is returned as it is
	switch {
	case own && s.op.insists && (!hit.begins || !errors.Is(k.typed, eventing.ErrUnavailable)): // else it begins on another connection
		s.recorded(where, err)
		return
	case err == nil:
		if !reflect.DeepEqual(answer, s.answer) {
			s.Errorf("%s: the answer is %+v, not %+v", where, answer, s.answer)
		}
	case s.op.insists:
		s.Errorf("%s: gave up: %v", where, err)
	case errors.Is(err, k.typed):
		if s.op.repeats && !k.always && errors.Is(k.typed, eventing.ErrSerialization) && (hit.inTx || hit.sql == "begin" || s.count == 1) {
			s.Errorf("%s: the store has not done it again: %v", where, err)
		}
	case !own:
		s.Errorf("%s: an error without its type: %v", where, err)
	}
	if err != nil {
		s.again(where, k.after && (hit.sql == "commit" || !hit.inTx && hit.sql != "begin"))
	}
	if d := diff(s.state(), s.after); d != "" {
		s.Errorf("%s: the state is not as without it:%s", where, d)
	}
}

// noneIdles: until the server has noticed that a connection is broken, it holds its locks, which some statements pass over.
const noneIdles = `SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%')`

// again repeats the operation, which may have happened.
func (s *subject[Tx]) again(where string, committed bool) {
	s.Helper()
	s.await(noneIdles)
	if !committed {
		if d := diff(s.state(), s.before); d != "" && !s.op.several {
			s.Errorf("%s: the operation has failed, and done something:%s", where, d)
		}
	}
	if _, err := s.op.do(s.background(), s.work); err != nil && (!committed || s.op.done == nil || !s.op.done(err)) {
		s.Errorf("%s: doing it again: %v", where, err)
	}
}

// recorded checks that the failure of a handler's own statement is its attempt.
func (s *subject[Tx]) recorded(where string, err error) {
	s.Helper()
	effects, effectsErr := s.db.Effects(s.background())
	stats, statsErr := s.db.Stats(s.background())
	if err = errors.Join(err, effectsErr, statsErr); err != nil || len(effects) != 0 || stats.Deliveries["retrying"] != 1 {
		s.Errorf("%s: effects %v, deliveries %v, %v; want a retry, and nothing else", where, effects, stats.Deliveries, err)
	}
}

func firstLine(sql string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(sql), "\n")
	return line[:min(len(line), 80)]
}
