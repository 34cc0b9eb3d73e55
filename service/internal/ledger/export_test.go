package ledger

import "strings"

// The statements of Sweep.
const (
	SweepSQLite   = sweepSQLite
	SweepPostgres = sweepPostgres
)

// NamesStatements are those of Names, for n envelopes.
func NamesStatements(n int) []string {
	return []string{strings.ReplaceAll(selectEncoded, "{ids}", places(n)), selectNames + places(n) + ")"}
}
