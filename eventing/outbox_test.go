package eventing

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// misuses are the ways to append outside of a transaction; none may compile.
var misuses = []string{
	`outbox.Append(ctx, e)`,
	`outbox.Append(ctx, nil, e, db)`,
	`outbox.Append(ctx, db, e)`,
	`outbox.Append(ctx, conn, e)`,
	`outbox.Append(ctx, ctx, e)`,
	`outbox.Append(ctx, tx, "an event")`,
	`outbox.InTx(ctx, func(tx *sql.DB) error { return nil })`,
}

// TestAppendNeedsTransaction compiles them as a user would.
func TestAppendNeedsTransaction(t *testing.T) {
	t.Parallel()
	compile := func(statements ...string) (string, error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "use.go")
		source := `package use

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/eventing"
)

func use(ctx context.Context, outbox *eventing.Outbox[*sql.Tx], db *sql.DB, conn *sql.Conn, tx *sql.Tx, e eventing.Event[int]) {
	_, _, _, _, _, _ = ctx, outbox, db, conn, tx, e
	` + strings.Join(statements, "\n\t") + "\n}\n"
		if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-e", "-o", os.DevNull, file).CombinedOutput()
		return string(out), err
	}
	if out, err := compile(`_ = outbox.Append(ctx, tx, e)`); err != nil {
		t.Fatalf("appending in a transaction compiles: %v\n%s", err, out)
	}
	out, err := compile(misuses...)
	if err == nil {
		t.Fatal("appending outside of a transaction does not compile")
	}
	const first = 12 // the line of the first statement
	for i, misuse := range misuses {
		if line := fmt.Sprintf("use.go:%d:", first+i); !strings.Contains(out, line) {
			t.Errorf("this must not compile: %s\n%s", misuse, out)
		}
	}
}

func TestOrderingKeysAreSortedAndDistinct(t *testing.T) {
	t.Parallel()
	got := orderingKeys([]OutboxRow{{OrderingKey: "b"}, {}, {OrderingKey: "a"}, {OrderingKey: "b"}})
	if !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("keys are locked in one order, once each; got %v", got)
	}
}

func TestWaker(t *testing.T) {
	t.Parallel()
	var w Waker
	w.Wake() // nobody sleeps
	a, stopA := w.Sleep()
	b, stopB := w.Sleep()
	defer stopB()
	w.Wake()
	w.Wake()
	<-a
	<-b
	select {
	case <-a:
		t.Error("wake-ups fold into one")
	default:
	}
	stopA()
	w.Wake()
	<-b
	select {
	case <-a:
		t.Error("who has stopped is not woken")
	default:
	}
}
