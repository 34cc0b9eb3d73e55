package gateway

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// replaySQL is the documented statement, word for word.
const replaySQL = `INSERT INTO event_outbox (id, event_id, event_type, payload, status, attempts)
SELECT event_id || '-replay', event_id, event_type, payload, 'pending', 0
FROM dead_letter_events
WHERE event_id = '...';
`

func replayOf(id string) string { return strings.Replace(replaySQL, "...", id, 1) }

// promptly is how soon a replay by SQL has run.
const promptly = 2 * time.Second

// inEachShell runs a test beside sqlite3 and beside psql, one after the other and not
// beside other tests of this package: there are promises of time in it.
func inEachShell(t *testing.T, test func(t *testing.T, address, brokerURL string)) {
	t.Run("sqlite3", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), inProcess) })
	t.Run("psql", func(t *testing.T) { test(t, testserver.PostgresURL(t), inProcess) })
}

// overEachBroker runs a test beside psql, with each broker that has a server.
func overEachBroker(t *testing.T, test func(t *testing.T, address, brokerURL string)) {
	t.Run("redis", func(t *testing.T) { test(t, testserver.PostgresURL(t), testserver.RedisURL(t)) })
	t.Run("postgres", func(t *testing.T) {
		address := testserver.PostgresURL(t)
		test(t, address, address)
	})
}

// Of three consumers two fail for good. The documented statement has each of the
// two handle the event again, once, and never the third; when one fails again, it
// works again for that one only; when none has failed, it is accepted and runs
// nothing.
func TestReplayBySQL(t *testing.T) {
	inEachShell(t, replayBySQL)
	overEachBroker(t, replayBySQL)
}

func replayBySQL(t *testing.T, address, brokerURL string) {
	x := newTrio(t, address, brokerURL)
	x.dispatch(x.store, "first")
	x.breaks("billing", "mail")
	x.append("e1", "e2")
	for _, id := range []string{"e1", "e2"} {
		testkit.Eventually(t, soon, func() error {
			return x.is(id, count{"billing": 1, "mail": 1, "stock": 1}, count{"stock": 1}, "billing", "mail")
		})
	}

	x.breaks()
	x.script(replayOf("e1"))
	all := count{"billing": 1, "mail": 1, "stock": 1}
	testkit.Eventually(t, promptly, func() error { return x.is("e1", count{"billing": 2, "mail": 2, "stock": 1}, all) })

	x.breaks("mail")
	x.script(replayOf("e2"))
	testkit.Eventually(t, promptly, func() error {
		return x.is("e2", count{"billing": 2, "mail": 2, "stock": 1}, count{"billing": 1, "stock": 1}, "mail")
	})
	x.breaks()
	x.script(replayOf("e2"))
	testkit.Eventually(t, promptly, func() error { return x.is("e2", count{"billing": 2, "mail": 3, "stock": 1}, all) })

	for again := range 3 {
		x.script(replayOf("e1"))
		testkit.Eventually(t, promptly, func() error {
			if n := len(x.texts(`SELECT id FROM event_outbox WHERE id LIKE 'e1-replay/%' AND status = 'sent'`)); n != again+1 {
				return fmt.Errorf("%d settled rows of the statement, want %d", n, again+1)
			}
			return x.is("e1", count{"billing": 2, "mail": 2, "stock": 1}, all)
		})
	}
	if notes := x.texts(`SELECT notes FROM dead_letter_consumers WHERE event_id = 'e2' AND consumer_name = 'mail'`); strings.Count(notes[0], `"by":"sql"`) != 2 {
		t.Errorf("the acts are %s, want the two replays by SQL", notes)
	}
}

// Until a dispatcher has adopted the row, the statement is refused when it is run
// again, and changes nothing.
func TestReplayBySQLTwice(t *testing.T) {
	inEachShell(t, func(t *testing.T, address, brokerURL string) {
		x := newTrio(t, address, brokerURL)
		stop := x.dispatch(x.store, "first")
		x.breaks("billing")
		x.append("e1")
		testkit.Eventually(t, soon, func() error {
			return x.is("e1", count{"billing": 1, "mail": 1, "stock": 1}, count{"mail": 1, "stock": 1}, "billing")
		})
		stop()
		x.breaks()
		x.script(replayOf("e1"))
		if out, err := x.shell(replayOf("e1")); err == nil || !strings.Contains(strings.ToLower(out), "unique") {
			t.Errorf("the statement again: %v: %s, want that the id is not unique", err, out)
		}
		x.dispatch(x.store, "second")
		testkit.Eventually(t, promptly, func() error {
			return x.is("e1", count{"billing": 2, "mail": 1, "stock": 1}, count{"billing": 1, "mail": 1, "stock": 1})
		})
	})
}

// Two dispatchers that find the same hand-written rows run nothing twice.
func TestTwoDispatchersAdopt(t *testing.T) {
	inEachShell(t, func(t *testing.T, address, brokerURL string) {
		x := newTrio(t, address, brokerURL)
		stop := x.dispatch(x.store, "first")
		x.breaks("billing", "mail")
		var ids []string
		var script strings.Builder
		for i := range 40 {
			ids = append(ids, fmt.Sprintf("e%d", i))
			script.WriteString(replayOf(ids[i]))
		}
		x.append(ids...)
		each := func(calls, effects count, open ...string) {
			t.Helper()
			for _, id := range ids {
				testkit.Eventually(t, soon, func() error { return x.is(id, calls, effects, open...) })
			}
		}
		each(count{"billing": 1, "mail": 1, "stock": 1}, count{"stock": 1}, "billing", "mail")
		stop()
		x.breaks()
		x.script(script.String())
		x.dispatch(x.store, "second")
		x.dispatch(storetest.Open(t, address), "third")
		each(count{"billing": 2, "mail": 2, "stock": 1}, count{"billing": 1, "mail": 1, "stock": 1})
	})
}

// What somebody wrote into the outbox that is no envelope becomes a dead letter
// with its bytes, and keeps nothing else from going on. Bytes that are not UTF-8
// cannot get into PostgreSQL in the first place.
func TestHandWrittenNonsense(t *testing.T) {
	inEachShell(t, func(t *testing.T, address, brokerURL string) {
		x := newTrio(t, address, brokerURL)
		x.dispatch(x.store, "first")
		want := map[string]string{"not json": `{"event_id": "h1", "payload`, "empty": "", "no object": `"h3"`}
		for id, payload := range want {
			x.script(handWritten(id, "'"+payload+"'"))
		}
		notUTF8 := map[string]string{"text": "CAST(X'7bff7d' AS TEXT)", "blob": "X'7bfe7d'"}
		if !x.store.Embedded {
			notUTF8 = nil
			for _, value := range []string{`E'\x7b\xff\x7d'`, `convert_from(decode('7bff7d', 'hex'), 'UTF8')`} {
				if out, err := x.shell(handWritten("text", value)); err == nil || !strings.Contains(out, "invalid byte sequence") {
					t.Errorf("%s: %v: %s, want that the bytes are refused", value, err, out)
				}
			}
		}
		for id, value := range notUTF8 {
			x.script(handWritten(id, value))
		}
		if x.store.Embedded {
			want["text"], want["blob"] = "{\xff}", "{\xfe}"
			// The row's own id is nobody's but the table's.
			x.script(strings.Replace(handWritten("odd", `'{"payload": {"Name": "odd"}}'`), "'odd'", "CAST(X'ff' AS TEXT)", 1))
		}
		x.script(handWritten("good", `'{"payload": {"Name": "good"}}'`))

		all := count{"billing": 1, "mail": 1, "stock": 1}
		testkit.Eventually(t, soon, func() error { return x.is("good", all, all) })
		if x.store.Embedded {
			testkit.Eventually(t, soon, func() error { return x.is("odd", all, all) })
		}
		letters := eventing.NewDeadLetters(x.store.Events)
		for id, payload := range want {
			testkit.Eventually(t, soon, func() error { return x.isQuarantined(letters, id, payload) })
		}
	})
}

func handWritten(id, payload string) string {
	return fmt.Sprintf("INSERT INTO event_outbox (id, event_id, event_type, payload, status, attempts) VALUES ('%s', '%s', 'thing', %s, 'pending', 0);\n", id, id, payload)
}

// isQuarantined returns an error until the row is failed, and its bytes are a dead
// letter of stage decode.
func (x *trio) isQuarantined(letters *eventing.DeadLetters, id, payload string) error {
	x.Helper()
	if failed := x.texts(`SELECT last_error FROM event_outbox WHERE event_id = $1 AND status = 'failed'`, id); len(failed) != 1 || failed[0] == "" {
		return fmt.Errorf("%s: failed with %q, want one row with an error", id, failed)
	}
	synthetic, wrapped := eventing.Undecodable([]byte(payload))
	found, err := letters.List(x.Context(), eventing.DeadLetterFilter{EventID: synthetic})
	if err != nil || len(found) != 1 {
		return errors.Join(fmt.Errorf("%s: %d dead letters under %s, want one", id, len(found), synthetic), err)
	}
	if d := found[0]; d.Stage != eventing.StageDecode || d.Reason != eventing.ReasonEnvelopeMalformed || string(d.Payload) != string(wrapped) {
		return fmt.Errorf("%s: stage %s, reason %s, payload %s, want the bytes %q in stage decode", id, d.Stage, d.Reason, d.Payload, payload)
	}
	return nil
}
