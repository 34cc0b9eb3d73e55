package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// What the gateway answered 202 for is on the disk: between one acceptance and the
// next, SQLite has synced its log. The trace of the same on a database with
// synchronous=NORMAL shows no sync, so the trace tells one from the other.
func TestSQLiteSyncsEachCommit(t *testing.T) {
	t.Parallel()
	strace := testserver.Tool(t, "strace")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-y", "-e", "trace=write,fsync,fdatasync", "-e", "signal=none", "-o", trace, self)
	cmd.Env = append(os.Environ(), programEnv+"="+committer, "STORE_URL=sqlite:"+filepath.Join(dir, "waybill.db"),
		"UNSAFE_STORE="+filepath.Join(dir, "unsafe.db"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v (may this process trace another? ptrace is needed): %s", err, out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		synced int
	}{{"safe", commits}, {"unsafe", 0}} {
		if got, want := syncedCommits(text, c.name), c.synced; got != want {
			t.Errorf("%s: a sync of the log before the answer to %d of %d commits, want %d\n%s", c.name, got, commits, want, text[:min(len(text), 4096)])
		}
	}
}

var (
	marker    = regexp.MustCompile(`write\(1<[^>]*>, "(\w+) (begin|commit)`)
	logSync   = regexp.MustCompile(`^(\d+) .*f(?:data)?sync\(\d+<[^>]*-wal>(\) += 0| <unfinished)`)
	syncEnded = regexp.MustCompile(`^(\d+) .*<\.\.\. f(?:data)?sync resumed>\) += 0`)
)

// syncedCommits counts the commits of a store before whose answer the log was
// synced, after the answer to the one before it.
func syncedCommits(trace []byte, name string) (n int) {
	synced := false
	unfinished := map[string]bool{} // by thread
	for line := range bytes.Lines(trace) {
		if m := marker.FindSubmatch(line); m != nil && string(m[1]) == name {
			if string(m[2]) == "commit" && synced {
				n++
			}
			synced = false
		} else if m := logSync.FindSubmatch(line); m != nil {
			unfinished[string(m[1])] = strings.HasSuffix(string(m[2]), "unfinished")
			synced = synced || !unfinished[string(m[1])]
		} else if m := syncEnded.FindSubmatch(line); m != nil && unfinished[string(m[1])] {
			unfinished[string(m[1])] = false
			synced = true
		}
	}
	return n
}

// PostgreSQL counts the syncs of its log itself (versions 14 to 17). With
// synchronous_commit=off, the count shows that commits did without.
func TestPostgresSyncsEachCommit(t *testing.T) {
	t.Parallel()
	address := testserver.PrivatePostgres(t).URL()
	db := storetest.Open(t, address)
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got, err := texts(t.Context(), db.Read, "SHOW "+setting); err != nil || got[0] != "on" {
			t.Errorf("%s is %v, %v, want on", setting, got, err)
		}
	}
	if n := syncsOf(t, db, address); n < commits {
		t.Errorf("%d syncs for %d commits, want one each", n, commits)
	}
	if _, err := db.Read.ExecContext(t.Context(), `DELETE FROM courier_ledger; DELETE FROM event_outbox`); err != nil {
		t.Fatal(err)
	}
	if n := syncsOf(t, db, address+"&synchronous_commit=off"); n >= commits {
		t.Errorf("%d syncs for %d commits that need not be synced: the count tells nothing", n, commits)
	}
}

// syncsOf counts the syncs of the server's log while a store of its own accepts
// events.
func syncsOf(t *testing.T, db *store.Store, address string) int64 {
	t.Helper()
	before := walSyncs(t, db)
	s, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(acceptEach(t.Context(), s, func() {}), s.Close()); err != nil {
		t.Fatal(err)
	}
	return walSyncs(t, db) - before
}

// walSyncs waits until the server's other sessions have ended: they report what
// they did when they end.
func walSyncs(t *testing.T, db *store.Store) (n int64) {
	t.Helper()
	db.Read.SetMaxOpenConns(1)
	testkit.Eventually(t, soon, func() error {
		others, err := texts(t.Context(), db.Read, `SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
		if err == nil && len(others) > 0 {
			err = fmt.Errorf("sessions %v are left", others)
		}
		return err
	})
	if err := db.Read.QueryRowContext(t.Context(), `SELECT wal_sync FROM pg_stat_wal`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
