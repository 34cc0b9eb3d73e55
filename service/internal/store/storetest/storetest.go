// Package storetest opens stores for tests.
package storetest

import (
	"testing"

	"github.com/waybill-go/waybill/service/internal/store"
)

// Open opens the store at an address until the test ends. A SQLite file has its tables then, another store as it had.
func Open(t testing.TB, address string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Migrated is [Open] of a store that has all its tables then.
func Migrated(t testing.TB, address string) *store.Store {
	t.Helper()
	s := Open(t, address)
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
