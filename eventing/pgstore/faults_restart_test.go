package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testserver"
)

// restarted are the operations that meet a crash of the server, and at which of their
// statements, with pgx and with database/sql, besides the last, the COMMIT. Each costs a start.
var restarted = []struct {
	name     string
	pgx, sql int
}{
	{"append one", 2, 3}, {"claim", 1, 1}, {"settle", 1, 2}, {"succeed at a retry", 2, 4}, {"succeed at a retry without a hook", 1, 4}, {"fail and die", 4, 5}, {"the engine receives", 1, 2}, {"the engine dispatches", 1, 2},
}

// The server crashes before a statement, or when it has executed one, and comes back
// while the operation is tried again and again.
func TestCrashOfServer(t *testing.T) {
	t.Parallel()
	t.Run("pgx", func(t *testing.T) {
		t.Parallel()
		server := testserver.PrivatePostgres(t)
		restartAll(t, server, newRig(t, private(t, server), nil), operations[pgx.Tx](), 0)
	})
	t.Run("sql", func(t *testing.T) {
		t.Parallel()
		server := testserver.PrivatePostgres(t)
		restartAll(t, server, newSQLRig(t, private(t, server), nil), operations[*sql.Tx](), 1)
	})
}

// private is the database of a server that a test has to itself.
func private(t *testing.T, server *testserver.PostgresServer) database {
	t.Helper()
	d := prepare(t, server.URL())
	t.Cleanup(func() {
		_ = d.db.Close() // the pool is closed next
		d.pool.Close()
	})
	return d
}

func restartAll[Tx any](t *testing.T, server *testserver.PostgresServer, r rig[Tx], all []operation[Tx], offset int) {
	t.Helper()
	for i, which := range restarted {
		op := all[slices.IndexFunc(all, func(op operation[Tx]) bool { return op.name == which.name })]
		t.Run(op.name, func(t *testing.T) {
			s := newSubject(t, r, op)
			nth := which.pgx
			if r.begin > 0 {
				nth = which.sql
			}
			for j, at := range []struct {
				nth   int
				after bool
			}{{nth, false}, {nth, true}, {s.count, false}, {s.count, true}} {
				if soak() || (i+j+offset)%4 == 0 {
					s.restart(server, at.nth, at.after)
				}
			}
		})
	}
}

// restart does the operation, and repeats it until the server is back.
func (s *subject[Tx]) restart(server *testserver.PostgresServer, nth int, after bool) {
	s.Helper()
	s.exec(empty)
	s.db = s.rig.open()
	s.op.prepare(s.work)
	s.rows = s.claimed()
	started := make(chan error, 1)
	crash := func() {
		if err := server.Kill(); err != nil {
			s.Error(err)
		}
		go func() { started <- server.Start(s.background()) }()
	}
	s.rig.faulty.arm(kind{strike: func(_ *faulty, c *pgx.Conn, _ hit) {
		if after {
			wireOf(c).afterwards(crash)
		} else {
			crash()
		}
	}}, nth)
	ctx, cancel := context.WithTimeout(s.background(), time.Minute)
	defer cancel()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	_, err := s.op.do(s.rig.faulty.context(ctx), s.work)
	hit, _ := s.rig.faulty.disarm()
	if hit == nil {
		s.Fatalf("statement %d was not executed", nth)
	}
	if err == nil && !s.op.insists {
		s.Errorf("%s: nothing happened", hit.sql)
	}
	for tries := 1; err != nil && (s.op.done == nil || !s.op.done(err)); tries++ {
		if !errors.Is(err, eventing.ErrUnavailable) {
			s.Fatalf("%s, try %d: an error without its type: %v", firstLine(hit.sql), tries, err)
		}
		<-pause.C
		_, err = s.op.do(ctx, s.work)
	}
	s.must(<-started)
	s.plain.Reset() // its connections are gone
	if d := diff(s.state(), s.after); d != "" {
		s.Errorf("%s: the state is not as without a crash:%s", firstLine(hit.sql), d)
	}
}
