package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"sort"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// Migrations are the numbered steps of a schema, for one dialect. The table
// keeps which have been applied.
type Migrations struct {
	Dialect goose.Dialect
	FS      fs.FS
	Table   string
}

// Migration is one step, and when it was applied; zero: not yet.
type Migration struct {
	Name      string    `json:"name"`
	AppliedAt time.Time `json:"applied_at"`
}

func (m Migrations) provider(db *sql.DB) (*goose.Provider, error) {
	opts := []goose.ProviderOption{goose.WithTableName(m.Table), goose.WithDisableGlobalRegistry(true)}
	if m.Dialect == goose.DialectPostgres {
		locker, err := lock.NewPostgresSessionLocker() // processes that start together migrate one after the other
		if err != nil {
			return nil, err
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	return goose.NewProvider(m.Dialect, db, m.FS, opts...)
}

// Up applies what has not been applied, each step in a transaction. Several processes may
// do this at once.
func (m Migrations) Up(ctx context.Context, db *sql.DB) (applied []string, err error) {
	p, err := m.provider(db)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		results, err := p.Up(ctx)
		for _, r := range results {
			applied = append(applied, r.Source.Path)
		}
		if err == nil {
			return applied, nil
		}
		// There is no lock on SQLite: another process may have applied the step since we
		// looked. Ours is rolled back then, and the next look finds theirs.
		if m.Dialect == goose.DialectPostgres || try == upTries {
			return applied, fmt.Errorf("migrate: %w", err)
		}
	}
}

const upTries = 5

// Status lists all steps. It changes nothing.
func (m Migrations) Status(ctx context.Context, db *sql.DB) ([]Migration, error) {
	p, err := m.provider(db)
	if err != nil {
		return nil, err
	}
	begun, err := m.begun(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("look for table %s: %w", m.Table, err)
	}
	var steps []Migration
	if !begun { // goose would make its table
		for _, source := range p.ListSources() {
			steps = append(steps, Migration{Name: source.Path})
		}
		return steps, nil
	}
	found, err := p.Status(ctx)
	for _, s := range found {
		steps = append(steps, Migration{Name: s.Source.Path, AppliedAt: s.AppliedAt})
	}
	return steps, err
}

// begun reports whether there is the table of what has been applied.
func (m Migrations) begun(ctx context.Context, db *sql.DB) (begun bool, err error) {
	query := `SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = $1`
	if m.Dialect == goose.DialectPostgres {
		query = `SELECT to_regclass($1) IS NOT NULL`
	}
	err = db.QueryRowContext(ctx, query, m.Table).Scan(&begun)
	return begun, err
}

// SQL returns the statements of all steps, for those who run them by other
// means.
func (m Migrations) SQL() (string, error) {
	names, err := fs.Glob(m.FS, "*.sql")
	if err != nil {
		return "", err
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(m.FS, name)
		if err != nil {
			return "", err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		fmt.Fprintf(&b, "-- %s\n%s\n", name, strings.TrimSpace(strings.ReplaceAll(up, "-- +goose Up\n", "")))
	}
	return b.String(), nil
}
