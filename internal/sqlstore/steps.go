package sqlstore

import "context"

// Statement is one of several.
type Statement struct {
	Query string
	Args  []any
}

// Pipeline is a Conn that runs several statements in one round trip.
type Pipeline interface {
	// ExecAll runs statements in the order given, until one fails, and returns how many rows each has changed or, a SELECT, found.
	ExecAll(ctx context.Context, statements []Statement) ([]int64, error)
}

// step is a statement of a transaction that cannot go on unless it has the right number of rows.
type step struct {
	Statement
	selects bool                  // for those who have to choose between Exec and Query
	right   func(rows int64) bool // nil: any number is
	wrong   func() error          // otherwise
}

func (s step) judge(rows int64) error {
	if s.right == nil || s.right(rows) {
		return nil
	}
	return s.wrong()
}

func some(rows int64) bool { return rows > 0 }
func none(rows int64) bool { return rows == 0 }

func exactly(n int) func(rows int64) bool { return func(rows int64) bool { return rows == int64(n) } }

// change is a step that changes rows.
func (s *Store) change(statement string, args ...any) step {
	return step{Statement: Statement{s.sql(statement), args}}
}

// look is a step that selects rows.
func (s *Store) look(statement string, args ...any) step {
	return step{Statement: Statement{s.sql(statement), args}, selects: true}
}

// must returns the step with how many rows it must have, and what it fails with otherwise.
func (s step) must(right func(rows int64) bool, otherwise func() error) step {
	s.right, s.wrong = right, otherwise
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
