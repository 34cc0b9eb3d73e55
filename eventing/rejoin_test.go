package eventing

import "testing"

// A critical row that has gone to its unordered consumers is not settled by their conclusions once its turn has come for the
// ordered ones, even if they conclude before these have got it: a crash after that would lose it for them.
func TestRejoinedRowAwaitsItsSecondPart(t *testing.T) {
	t.Parallel()
	f := newFlights(func(int, int) {})
	row := &OutboxRow{Seq: 1, Lane: Critical}
	s := &sending{row: row, ordered: true, early: true, msgs: []outgoing{{topic: "unordered"}}}
	f.take(s)
	f.land(s, nil) // launched
	if f.rejoin(row) != s {
		t.Fatal("the row is not in flight")
	}
	f.land(s, nil) // the unordered consumer has concluded
	if len(f.complete) > 0 {
		t.Error("the row is settled before its ordered consumer has it")
	}
	s.msgs = append(s.msgs, outgoing{topic: "ordered.00"})
	f.take(s)
	f.land(s, nil) // launched
	if len(f.complete) > 0 {
		t.Error("the row is settled before its ordered consumer has concluded")
	}
	f.land(s, nil)
	if len(f.complete) != 1 || s.early {
		t.Errorf("%d rows are complete, want the one", len(f.complete))
	}
}
