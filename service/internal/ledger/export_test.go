package ledger

import "strings"

// The statements of Sweep.
const (
	SweepSQLite   = sweepSQLite
	SweepPostgres = sweepPostgres
)

// LookUps are the statements of Names and Envelopes, of three envelopes, events or keys, and their arguments.
func (l *Ledger) LookUps(three []string) map[string][]any {
	lists := []any{l.store.List(three)}
	return map[string][]any{
		strings.ReplaceAll(selectEncoded, "{ids}", places(3)): list(three),
		selectNames + l.store.In("idempotency_key", "$1"):     lists,
		selectSources: {10},
		selectOtherKeys + l.store.In("event_id", "$1"):                 lists,
		selectEvents + l.store.In("l.idempotency_key", "$4") + inOrder: {"e1", "", 10, lists[0]},
	}
}
