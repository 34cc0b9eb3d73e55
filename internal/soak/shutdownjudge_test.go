//go:build unix

package soak

import (
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// hang has the handlers of events not return before they have to.
func (c *careful) hang(events ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, event := range events {
		c.hanging[event] = true
	}
}

func (c *careful) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.hanging)
}

// haveHung reports whether the handlers of so many events hang.
func (c *careful) haveHung(events int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hung) != events {
		return fmt.Errorf("%d handlers hang, want %d", len(c.hung), events)
	}
	return nil
}

// deadAfter reports whether an event is a dead letter after so many failures of its handler.
func (c *careful) deadAfter(event string, failures int) error {
	letters, err := c.letters.List(c.Context(), eventing.DeadLetterFilter{EventID: event})
	if err != nil {
		return err
	}
	if len(letters) != 1 || letters[0].Status != eventing.StatusPending || letters[0].AttemptCount != failures {
		return fmt.Errorf("event %s has the dead letters %+v, want one after %d failures", event, letters, failures)
	}
	return nil
}

// judge checks the effects, and that the attempts that are recorded are those that the
// handler made: each of its failures has committed once as the next attempt, its success
// as the last.
func (c *careful) judge() {
	c.Helper()
	c.judgeEffects()
	recorded, err := c.conclusions()
	if err != nil {
		c.Fatal(err)
	}
	wasted := 0
	for event := range c.journal.committed {
		var want []string
		for n := range c.failures[event] {
			state := eventing.StateRetrying
			if (n+1)%attempts == 0 {
				state = eventing.StateDead
			}
			want = append(want, fmt.Sprint(n+1, " ", state))
		}
		want = append(want, fmt.Sprint(c.failures[event]+1, " "))
		if !slices.Equal(recorded[event], want) {
			c.Errorf("the attempts at event %s are recorded as %q, those of the handler were %q", event, recorded[event], want)
		}
		wasted += c.runs[event] - len(want)
	}
	c.Logf("%d runs of the handler were not concluded", wasted)
	c.judgeHistories()
}

// judgeHistories checks the dead letters, which are all closed: the attempts are numbered
// without gaps and reach at least to the last time that the event died. Those after it
// that a success followed are gone with the delivery.
func (c *careful) judgeHistories() {
	c.Helper()
	letters, err := c.letters.List(c.Context(), eventing.DeadLetterFilter{Limit: 10_000})
	if err != nil {
		c.Fatal(err)
	}
	for _, d := range letters {
		gaps := false
		for i, a := range d.History {
			gaps = gaps || a.Attempt != i+1
		}
		n, failures := len(d.History), c.failures[d.EventID]
		if d.Resolution != eventing.Resolved || d.AttemptCount != n || gaps || n > failures || n < failures-failures%attempts {
			c.Errorf("the dead letter of event %s is %q, with %d attempts, %+v; the handler failed %d times", d.EventID, d.Resolution, d.AttemptCount, d.History, failures)
		}
	}
	if len(letters) == 0 {
		c.Error("there was no dead letter: this proves little")
	}
}

// conclusions returns what has been concluded of each event, by attempt.
func (c *careful) conclusions() (map[string][]string, error) {
	rows, err := c.read.QueryContext(c.Context(), `SELECT event_id, state, attempt FROM conclusions ORDER BY attempt`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string][]string{}
	for rows.Next() {
		var event, state string
		var attempt int
		if err := rows.Scan(&event, &state, &attempt); err != nil {
			return nil, err
		}
		all[event] = append(all[event], fmt.Sprint(attempt, " ", state))
	}
	return all, rows.Err()
}
