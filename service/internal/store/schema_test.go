package store_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/internal/testserver"
	"github.com/waybill-go/waybill/service/internal/store"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(testserver.Exit)) }

// What somebody has applied by hand, the gateway must not apply again.
func TestMigrationSQL(t *testing.T) {
	t.Parallel()
	byHand := func(t *testing.T, driver, dsn, address string) {
		t.Helper()
		text, err := store.MigrationSQL(address)
		if err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("run the statements: %v", err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		wantApplied(t, address)
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "by hand.db")
		byHand(t, "sqlite", path, "sqlite:"+path)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		address := testserver.PostgresURL(t)
		byHand(t, "pgx", address, address)
	})
}

func wantApplied(t *testing.T, address string) {
	t.Helper()
	schema, err := store.OpenSchema(t.Context(), address, false)
	if err != nil {
		t.Fatal(err)
	}
	defer schema.Close()
	steps, err := schema.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < 2 {
		t.Fatalf("steps: %v, want the library's and the gateway's", steps)
	}
	for _, s := range steps {
		if s.AppliedAt.IsZero() {
			t.Errorf("%s is not recorded as applied", s.Name)
		}
	}
	if applied, err := schema.Up(t.Context()); err != nil || len(applied) > 0 {
		t.Fatalf("applied %v, error %v; want nothing left to apply", applied, err)
	}
}

// Who looks what there is to be done needs no right to do it, and finds the same afterwards.
func TestStatusMakesNothing(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "waybill.db"), "postgres": testserver.PostgresURL(t)} {
		db, steps := store.GatewaySteps(t, address)
		schema, err := store.OpenSchema(t.Context(), address, true)
		if err != nil {
			t.Fatal(err)
		}
		defer schema.Close()
		all, err := schema.Status(t.Context())
		if err != nil || len(all) <= len(steps.ListSources()) || !all[0].AppliedAt.IsZero() || !all[len(all)-1].AppliedAt.IsZero() {
			t.Errorf("%s: the status is %+v, %v", name, all, err)
		}
		tables := `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()`
		if name == "sqlite" {
			tables = `SELECT name FROM sqlite_master`
		}
		if got := texts(t, db, tables); len(got) > 0 {
			t.Errorf("%s: there are tables: %q", name, got)
		}
	}
}

func TestOpenExistingMakesNothing(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "waybill.db")
		if _, err := store.OpenExisting(t.Context(), "sqlite:"+path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("error %v, want that there is no such file", err)
		}
		if _, err := store.OpenSchema(t.Context(), "sqlite:"+path, false); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("error %v, want that there is no such file", err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("the file was made: %v", err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		address := testserver.PostgresURL(t)
		if _, err := store.OpenExisting(t.Context(), address); err == nil || !strings.Contains(err.Error(), "gateway migrate up") {
			t.Fatalf("error %v, want the next step", err)
		}
		schema, err := store.OpenSchema(t.Context(), address, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := schema.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := schema.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := store.OpenExisting(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Who has no rights is told so, and not to make tables.
func TestOpenExistingWithoutRights(t *testing.T) {
	t.Parallel()
	address := testserver.PostgresURL(t)
	s := storetest.Migrated(t, address)
	do := func(ctx context.Context, statement string) {
		t.Helper()
		if err := s.Events.InTx(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, statement)
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	do(t.Context(), `CREATE ROLE waybill_without_rights`)
	t.Cleanup(func() { do(context.WithoutCancel(t.Context()), `DROP ROLE waybill_without_rights`) })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("role", "waybill_without_rights")
	u.RawQuery = q.Encode()
	for name, open := range map[string]func(context.Context, string) (*store.Store, error){"gateway": store.OpenExisting, "waybill": store.OpenLibrary} {
		if _, err := open(t.Context(), u.String()); err == nil || !strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), "migrate up") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddressesAtFault(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"", "sqlite", "sqlite:", "waybill.db", "mysql://u:hunter2@h/x", "postgres;//u:hunter2@h", "postgres://u:p@hunter2/x@h/db", "postgres://u:1/hunter2@h/db", "postgres://u:p@hunter2@h/db"} {
		_, err := store.Open(context.Background(), address)
		if !errors.Is(err, store.ErrAddress) {
			t.Errorf("%q: error %v, want ErrAddress", address, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error tells the password: %v", address, err)
		}
	}
}

func TestMasked(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"sqlite:waybill.db": "sqlite:waybill.db",
		"inproc:":           "inproc:",
		"postgres://waybill:hunter2@db:5432/waybill":                             "postgres://waybill:xxxxx@db:5432/waybill",
		"postgres://db/waybill?user=w&password=hunter2":                          "postgres://db/waybill?…",
		"postgres://db/waybill?sslpassword=hunter2":                              "postgres://db/waybill?…",
		"postgres://db/waybill?user=w&P%61SSWORD=hunt":                           "postgres://db/waybill?…",
		"postgres://db/waybill?password=hunter2%zz":                              "postgres://db/waybill?…",
		"postgres://db/waybill?a;oauth_token=hunter2":                            "postgres://db/waybill?…",
		"sqlite:waybill.db?client_secret=hunter2":                                "sqlite:waybill.db?…",
		"postgres://db/waybill?sslmode=require":                                  "postgres://db/waybill?sslmode=require",
		"mongodb://w:hunter2@a:1,b:2/waybill?tls=true":                           "mongodb://w:xxxxx@a:1,b:2/waybill?tls=true",
		"mongodb+srv://w:hunter2@db/waybill":                                     "mongodb+srv://w:xxxxx@db/waybill",
		"mongodb://db/waybill?authMechanismProperties=AWS_SESSION_TOKEN:hunter2": "mongodb://db/waybill?…",
		"postgres://waybill:hunt@er2/x@db:5432/waybill":                          "postgres:…",
		"postgres://waybill:1/hunter2@db:5432/waybill":                           "postgres:…",
		"redis://:hunt@er2@db:6379/0":                                            "redis:…",
		"sqlite:a@b@c.db":                                                        "sqlite:a@b@c.db",
		"host=db user=waybill password=hunter2":                                  "…",
		"postgres:host=db password=hunter2":                                      "postgres:…",
		"redis:host password=hunter2":                                            "redis:…",
		"postgres://waybill:hunter2%zz@db/waybill":                               "postgres:…",
	} {
		if got := store.Masked(address); got != want {
			t.Errorf("%q is shown as %q, want %q", address, got, want)
		}
	}
}
