package store

import (
	"context"
	"errors"
)

// OpenLibrary opens a database that has the library's tables alone, or at least these, for
// those who work on what others have stored: that there are no tables yet is an error.
// Those of a SQLite file it brings up to date, as the library does whenever it opens one.
func OpenLibrary(ctx context.Context, address string) (*Store, error) {
	schema, err := OpenLibrarySchema(ctx, address, false)
	if err != nil {
		return nil, err
	}
	_, err = schema.db.ExecContext(ctx, `SELECT 1 FROM dead_letter_consumers LIMIT 0`)
	if err = errors.Join(err, schema.Close()); err != nil {
		return nil, unusable(address, "library's", "waybill --store "+Masked(address)+" migrate up", err)
	}
	scheme, where, err := split(address)
	if err != nil {
		return nil, err
	}
	if scheme == schemeSQLite {
		return openSQLiteFile(ctx, where)
	}
	return openPostgres(ctx, where, nil)
}

// OpenLibrarySchema is [OpenSchema] for the library's tables alone.
func OpenLibrarySchema(ctx context.Context, address string, create bool) (*Schema, error) {
	schema, err := OpenSchema(ctx, address, create)
	if err != nil {
		return nil, err
	}
	schema.steps = schema.steps[:1]
	return schema, nil
}

// LibrarySQL is [MigrationSQL] for the library's tables alone.
func LibrarySQL(address string) (string, error) {
	scheme, _, err := split(address)
	if err != nil {
		return "", err
	}
	return sqlOf(migrationsOf(scheme)[:1])
}
