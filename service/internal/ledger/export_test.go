package ledger

// The statements of Sweep.
const (
	SweepSQLite   = sweepSQLite
	SweepPostgres = sweepPostgres
)
