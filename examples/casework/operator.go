package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/eventing"
)

// What an operator does about cases that are frozen, and about events that were dealt with in another way.

const (
	operatorName = "operator"

	replayed  = "mended and replayed"
	discarded = "discarded"
)

const (
	mendedNote = "the status is again what its last transition says"
	twiceNote  = "decided twice: the first decision stands"
)

// insteadOf says what was done in place of what could not be, by consumer.
var insteadOf = map[string]string{
	notificationEngine: "the case's handler was told instead",
	fraudEngine:        "the case counts as of medium risk",
}

// commands are what does the same from a shell.
var commands = map[string]string{
	replayed:  `dlq replay %s --note "` + mendedNote + `"`,
	discarded: `dlq close %s --reason "` + twiceNote + `"`,
}

// operator works on the dead letters of a system.
type operator struct {
	*system
	letters *eventing.DeadLetters
}

func newOperator(s *system, c *clock) *operator {
	return &operator{s, eventing.NewDeadLetters(s.db.events, eventing.WithClock(c.now))}
}

// frozen returns the dead letters of the workflow engine: behind each waits all that has happened to its case
// since.
func (o *operator) frozen(ctx context.Context) ([]eventing.DeadLetter, error) {
	return o.letters.List(ctx, eventing.DeadLetterFilter{Consumer: workflowEngine, OpenOnly: true, Limit: 10_000})
}

// mend sets right what somebody has changed by hand, where that is what is wrong: the case stands where its last transition took
// it. It reports whether it was.
func (o *operator) mend(ctx context.Context, caseID string) (mended bool, err error) {
	err = o.db.events.InTx(ctx, func(tx *sql.Tx) error {
		var status, last string
		if err := tx.QueryRowContext(ctx, `SELECT c.status, t.new_status FROM cases c JOIN case_transitions t ON t.case_id = c.case_id
			WHERE c.case_id = $1 ORDER BY t.position DESC LIMIT 1`, caseID).Scan(&status, &last); err != nil {
			return fmt.Errorf("case %s: %w", caseID, err)
		}
		mended = status != last
		if !mended {
			return nil
		}
		_, err := tx.ExecContext(ctx, setStatus, caseID, last)
		return err
	})
	return mended, err
}

// release lets a frozen case go on: the event that froze it is replayed if what was wrong is mended; one that can never be
// right is given up.
func (o *operator) release(ctx context.Context, d eventing.DeadLetter) (did string, err error) {
	e, err := eventing.DecodeEnvelope(d.Payload)
	if err != nil {
		return "", err
	}
	mended, err := o.mend(ctx, e.AggregateID)
	switch {
	case err != nil:
		return "", err
	case mended:
		return replayed, o.letters.Replay(ctx, d.Target(), operatorName, mendedNote)
	}
	return discarded, o.letters.Discard(ctx, d.Target(), operatorName, twiceNote)
}

// accept closes the dead letters of a consumer that has found another way, and returns them.
func (o *operator) accept(ctx context.Context, consumer string) ([]eventing.DeadLetter, error) {
	letters, err := o.letters.List(ctx, eventing.DeadLetterFilter{Consumer: consumer, OpenOnly: true, Limit: 10_000})
	for _, d := range letters {
		if err := o.letters.Discard(ctx, d.Target(), operatorName, insteadOf[consumer]); err != nil {
			return nil, err
		}
	}
	return letters, err
}
