package ledger

import "strings"

// The statements of Sweep.
const (
	SweepSQLite   = sweepSQLite
	SweepPostgres = sweepPostgres
)

// LookUps are the statements of Names and Envelopes, of three envelopes, events or keys, and their arguments.
func (l *Ledger) LookUps(three []string) map[string][]any {
	keys := l.store.List(three)
	return map[string][]any{
		strings.ReplaceAll(selectEncoded, "{ids}", places(3)): list(three),
		l.selectNames():                             {keys},
		sourcesQuery(l.store):                       {10},
		SourceList{"s"}.Select(l.store, "$1", "$2"): {keys, keys},
	}
}
