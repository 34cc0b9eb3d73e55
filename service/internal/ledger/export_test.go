package ledger

// Expired is the statement of Sweep.
const Expired = expired
