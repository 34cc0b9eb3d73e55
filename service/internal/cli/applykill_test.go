package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
)

// The first part of a plan is applied at applyRate until killAfter are replayed, and some more.
const (
	applyRate = 200
	killAfter = 1200
)

// Thousands of dead letters, ten in the long form, are replayed once each, in the order of their keys, by a plan whose
// process is killed in the middle.
func TestApplyThroughAKill(t *testing.T) {
	t.Parallel()
	dead := 3_000
	if testkit.Long() {
		dead = 10_000
	}
	for name, url := range map[string]func(*testing.T) string{"sqlite": sqliteURL, "postgres": func(t *testing.T) string { return testserver.PostgresURL(t) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := application(t, url(t))
			e.seed(t, strconv.Itoa(dead))
			path, report := e.planFile(t)
			e.applyUntilKilled(t, path)
			began, first := e.replayedAt(t, report.Plan)
			n := len(first)
			if n < killAfter || n >= dead {
				t.Fatalf("%d were replayed before the kill", n)
			}
			// The first few may make up for a slow start. In the short form the machine may be too busy for
			// the rate, but it is never more.
			if rate := float64(n-1) / began[n-1].Sub(began[0]).Seconds(); rate > applyRate*1.2 || testkit.Long() && rate < applyRate*0.8 {
				t.Errorf("%.0f per second, want %d within a fifth", rate, applyRate)
			}
			done := object[eventing.Applied](t, e, "dlq", "apply", path, "--yes", "--rate=0", "--by", "bob", "--note", "second half")
			if done.Before != n || done.Replayed != dead-n || done.Skipped != 0 || done.Left != 0 {
				t.Errorf("resumed after %d: %+v", n, done)
			}
			_, all := e.replayedAt(t, report.Plan)
			e.wantEachOnce(t, report.Plan, all, dead)
			for id, by := range first {
				if all[id] != by || by != "anna" {
					t.Errorf("%s: replayed by %s, and then by %s", id, by, all[id])
				}
			}
		})
	}
}

// applyUntilKilled applies a plan in another process, and kills it in the middle.
func (e environment) applyUntilKilled(t *testing.T, path string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "dlq", "apply", path, "--yes", "--rate", fmt.Sprint(applyRate), "--note", "first half")
	cmd.Env = append(os.Environ(), childEnv+"=1", "STORE_URL="+e["STORE_URL"], "USER=anna")
	p := testkit.StartProcess(t, cmd, filepath.Join(t.TempDir(), "stderr"), func(string) {})
	db := e.open(t)
	testkit.Eventually(t, time.Minute, func() error {
		p.Alive()
		var n int
		if err := db.Read.QueryRowContext(t.Context(), `SELECT count(*) FROM event_outbox`).Scan(&n); err != nil {
			return err
		}
		if n < killAfter {
			return fmt.Errorf("%d replayed", n)
		}
		return nil
	})
	p.Kill(0)
}

// Who is interrupted finishes the one in hand, and says how to go on.
func TestApplyInterrupted(t *testing.T) {
	t.Parallel()
	e := application(t, sqliteURL(t))
	e.seed(t, "1000")
	path, _ := e.planFile(t)
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], "dlq", "apply", path, "--yes", "--rate", "20", "--json")
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"=1", "STORE_URL="+e["STORE_URL"], "USER=anna"), &said
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	testkit.Eventually(t, time.Minute, func() error {
		if n := object[stats](t, e, "outbox", "stats").DeadLetters["replayed"]; n < 5 {
			return fmt.Errorf("%d replayed", n)
		}
		return nil
	})
	must(t, cmd.Process.Signal(os.Interrupt))
	printed, err := io.ReadAll(out)
	must(t, err)
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said.String(), "left; to go on: waybill dlq apply "+path) {
		t.Errorf("interrupted: %v, %s", err, said.String())
	}
	done := decode[eventing.Applied](t, string(printed))
	if n := object[stats](t, e, "outbox", "stats").DeadLetters["replayed"]; n != done.Replayed || done.Left != 1000-n || n == 0 {
		t.Errorf("%d are replayed; it says %+v", n, done)
	}
}

// replayedAt returns when a plan has replayed something, in order, and who did it, by event.
func (e environment) replayedAt(t *testing.T, plan string) (at []time.Time, by map[string]string) {
	t.Helper()
	rows, err := e.open(t).Read.QueryContext(t.Context(), `
SELECT c.event_id, c.generation, c.status, c.notes FROM dead_letter_consumers c JOIN event_outbox o ON o.event_id = c.event_id AND o.consumer_name = c.consumer_name ORDER BY o.seq`)
	must(t, err)
	defer rows.Close()
	by = map[string]string{}
	for rows.Next() {
		var id, status, notes string
		var generation int
		must(t, rows.Scan(&id, &generation, &status, &notes))
		var acts []eventing.Act
		must(t, json.Unmarshal([]byte(notes), &acts))
		if generation != 1 || status != "replayed" || len(acts) != 1 || acts[0].Act != "replayed" || acts[0].Plan != plan || !strings.HasSuffix(acts[0].Note, "half") {
			t.Fatalf("%s: generation %d, %s, acts %+v; want 1, replayed, and one act of plan %s", id, generation, status, acts, plan)
		}
		if by[id] != "" {
			t.Fatalf("%s was replayed twice", id)
		}
		at, by[id] = append(at, acts[0].At), acts[0].By
	}
	must(t, rows.Err())
	return at, by
}

// wantEachOnce checks that the outbox has one row of each event, of a key in the order of the
// events.
func (e environment) wantEachOnce(t *testing.T, plan string, by map[string]string, want int) {
	t.Helper()
	if len(by) != want {
		t.Errorf("plan %s has replayed %d of %d", plan, len(by), want)
	}
	rows, err := e.open(t).Read.QueryContext(t.Context(), `SELECT event_id, ordering_key, generation FROM event_outbox ORDER BY seq`)
	must(t, err)
	defer rows.Close()
	last, n := map[string]string{}, 0
	for rows.Next() {
		var id, key string
		var generation int
		must(t, rows.Scan(&id, &key, &generation))
		if id <= last[key] || generation != 1 {
			t.Fatalf("key %s: %s of generation %d follows %s", key, id, generation, last[key])
		}
		last[key] = id
		n++
	}
	must(t, rows.Err())
	if n != want || len(last) != 100 {
		t.Errorf("%d replays of %d keys, want %d of 100", n, len(last), want)
	}
}
