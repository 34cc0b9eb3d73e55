package sqlitestore

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

// What commits write to the log has to be copied into the file (a checkpoint: https://sqlite.org/wal.html#ckpt) before the log can
// begin anew. A commit that finds copyPages in the log does so, and all writers wait for it. Most of it is done by then, by a
// checkpointer that has begun at copyEarlyPages, beside them.
const (
	copyPages      = 7000 // of 4 KiB
	copyEarlyPages = 6000
)

// lookInterval is how often a checkpointer looks at the log, while there are commits: in it a busy gateway writes some 100 pages.
const lookInterval = 5 * time.Millisecond

// checkpointer copies the log into the file, beside the commits. It is an optimization: all is as well without it.
type checkpointer struct {
	db        *sql.DB // of one connection
	committed chan struct{}
	stop      context.CancelFunc
	stopped   chan struct{}
}

func startCheckpointer(db *sql.DB) *checkpointer {
	ctx, cancel := context.WithCancel(context.Background())
	c := &checkpointer{db: db, committed: make(chan struct{}, 1), stop: cancel, stopped: make(chan struct{})}
	go func() {
		defer close(c.stopped)
		c.run(ctx)
	}()
	return c
}

func (c *checkpointer) run(ctx context.Context) {
	pause := time.NewTicker(lookInterval)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.committed:
		}
		// What fails here, fails for the commit that finds more in the log, too. SQLite goes on without.
		if pages, err := c.checkpoint(ctx, "NOOP"); err == nil && pages >= copyEarlyPages {
			_, _ = c.checkpoint(ctx, "PASSIVE")
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// checkpoint copies the log, or does nothing, and returns how many pages have not been copied.
func (c *checkpointer) checkpoint(ctx context.Context, mode string) (pages int, err error) {
	var busy, logged, copied int
	err = c.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &logged, &copied)
	return logged - copied, err
}

func (c *checkpointer) close() error {
	c.stop()
	<-c.stopped
	return c.db.Close()
}

// checkpointed is a database whose checkpointer knows of the commits.
type checkpointed struct {
	sqlstore.SQLDB
	checkpointer *checkpointer
}

// Begin implements [sqlstore.DB].
func (d checkpointed) Begin(ctx context.Context, own bool) (sqlstore.Tx, error) {
	tx, err := d.SQLDB.Begin(ctx, own)
	if err != nil {
		return nil, err
	}
	return checkpointedTx{tx, d.checkpointer}, nil
}

type checkpointedTx struct {
	sqlstore.Tx
	checkpointer *checkpointer
}

// Commit implements [sqlstore.Tx].
func (t checkpointedTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	select {
	case t.checkpointer.committed <- struct{}{}:
	default:
	}
	return err
}

// forWriting are the writer's settings beside those of all. Ids are scattered over the indexes: so a page that many commits change is copied from
// the log into the file once for 28 MiB of log, not for 4; and 16 MiB of pages are in memory, and need not be read to be changed. What a
// statement of many rows needs to undo a part of it is kept in memory, not in a file.
var forWriting = "&_pragma=wal_autocheckpoint(" + strconv.Itoa(copyPages) + ")&_pragma=cache_size(-16384)&_pragma=temp_store(memory)"
