package sqlstore

import (
	"context"
	"strconv"
	"strings"
)

// Statement is one of several.
type Statement struct {
	Query string
	Args  []any
	// Wrong returns what an assertion fails with that does not hold: then the database refuses it with State. It is nil for statements
	// that assert nothing.
	Wrong func() error
	State string // an SQLSTATE
}

// Pipeline is a Conn that runs several statements in one round trip.
type Pipeline interface {
	// ExecAll runs statements in the order given, until one fails, and returns how many rows each has changed or, a SELECT, found.
	ExecAll(ctx context.Context, statements []Statement) ([]int64, error)
}

// Deferrer is a Tx that can keep statements until it commits, and do both in one round trip; or until another statement comes.
type Deferrer interface {
	// Defer reports whether it keeps them.
	Defer(statements []Statement) bool
}

// step is a statement of a transaction that cannot go on unless it has the right number of rows.
type step struct {
	Statement
	selects bool // for those who have to choose between Exec and Query
	right   number
}

// number is how many rows a step must have; the zero number: any.
type number struct {
	than    string // what count(*) must be, in SQL
	counted bool   // followed by n
	n       int64
	is      func(rows, n int64) bool // the same in Go
}

var (
	some = number{than: "> 0", is: func(rows, _ int64) bool { return rows > 0 }}
	none = number{than: "= 0", is: func(rows, _ int64) bool { return rows == 0 }}
)

func exactly(n int) number {
	return number{than: "= ", counted: true, n: int64(n), is: func(rows, n int64) bool { return rows == n }}
}

func (s step) judge(rows int64) error {
	if s.right.is == nil || s.right.is(rows, s.right.n) {
		return nil
	}
	return s.Wrong()
}

// change is a step that changes rows.
func (s *Store) change(statement string, args ...any) step {
	return step{Statement: Statement{Query: s.sql(statement), Args: args}}
}

// look is a step that selects rows.
func (s *Store) look(statement string, args ...any) step {
	return step{Statement: Statement{Query: s.sql(statement), Args: args}, selects: true}
}

// must returns the step with how many rows it must have, and what it fails with otherwise.
func (s step) must(right number, otherwise func() error) step {
	s.right, s.Wrong = right, otherwise
	return s
}

// walk runs steps, in one round trip if the database can, and returns what the first fails with.
func walk(ctx context.Context, tx Tx, steps ...step) error {
	if p, ok := tx.(Pipeline); ok && len(steps) > 1 {
		return walkAtOnce(ctx, p, steps)
	}
	for _, s := range steps {
		rows, err := s.run(ctx, tx)
		if err == nil {
			err = s.judge(rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func walkAtOnce(ctx context.Context, p Pipeline, steps []step) error {
	statements := make([]Statement, len(steps))
	for i, s := range steps {
		statements[i] = s.Statement
	}
	rows, err := p.ExecAll(ctx, statements)
	if err != nil {
		return err
	}
	for i, s := range steps {
		if err := s.judge(rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// run returns how many rows the step has changed or found.
func (s step) run(ctx context.Context, tx Tx) (rows int64, err error) {
	if !s.selects {
		return tx.Exec(ctx, s.Query, s.Args...)
	}
	err = each(ctx, tx, s.Query, s.Args, func(Rows) error {
		rows++
		return nil
	})
	return rows, err
}

// walkLater is walk for the last steps of a transaction: if the database can, they go with its COMMIT, and are what that fails with.
func (s *Store) walkLater(ctx context.Context, tx Tx, steps ...step) error {
	if d, ok := tx.(Deferrer); ok {
		assertions := make([]Statement, len(steps))
		for i := range steps {
			assertions[i] = s.assertion(steps[i])
		}
		if d.Defer(assertions) {
			return nil
		}
	}
	return walk(ctx, tx, steps...)
}

// How PostgreSQL says that an assertion does not hold (https://www.postgresql.org/docs/current/errcodes-appendix.html).
const (
	uniqueViolation = "23505"
	invalidText     = "22P02" // for a number
)

// assertion returns the step as a statement that fails by itself.
func (s *Store) assertion(a step) Statement {
	if a.right.is == nil {
		return a.Statement
	}
	if plain, ok := strings.CutSuffix(a.Query, orNothing); ok { // that a row is there already is an error as it is
		a.Query, a.State = plain, uniqueViolation
		return a.Statement
	}
	if a.right.counted {
		a.Args = append(a.Args, a.right.n)
	}
	q, ok := s.assertions.Load(a.Query)
	if !ok {
		q = a.asserted()
		s.assertions.Store(a.Query, q)
	}
	a.Query, a.State = q.(string), invalidText
	return a.Statement
}

// asserted returns the text of an assertion. What says no is the cast of a text that is no number: people read it in the server's log.
func (s step) asserted() string {
	with, rows, than := "", "FROM ("+s.Query+") AS found", s.right.than
	if !s.selects {
		with, rows = "WITH changed AS ("+s.Query+" RETURNING 1) ", "FROM changed"
	}
	if s.right.counted {
		than += "$" + strconv.Itoa(len(s.Args))
	}
	return with + "SELECT CASE WHEN count(*) " + than + " THEN 0 ELSE CAST('Waybill: another run has concluded this, or has the partition: ' || count(*) AS integer) END " + rows
}
