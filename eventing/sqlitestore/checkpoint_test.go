package sqlitestore_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/internal/testkit"
)

// The log is copied into the file beside the commits, before it has so many pages that a commit does it.
func TestLogIsCopiedBesideTheCommits(t *testing.T) {
	t.Parallel()
	d := open(t)
	page := bytes.Repeat([]byte{1}, 4000)
	write := func(pages int) {
		t.Helper()
		if err := d.InTx(t.Context(), func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS pages (n INTEGER PRIMARY KEY, content BLOB)`); err != nil {
				return err
			}
			insert, err := tx.PrepareContext(t.Context(), `INSERT INTO pages (content) VALUES (?)`)
			if err != nil {
				return err
			}
			defer insert.Close()
			for range pages {
				if _, err := insert.ExecContext(t.Context(), page); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	var busy, logged, copied int
	look := func() {
		t.Helper()
		if err := d.DB.QueryRowContext(t.Context(), `PRAGMA wal_checkpoint(NOOP)`).Scan(&busy, &logged, &copied); err != nil {
			t.Fatal(err)
		}
	}
	write(1200)
	if look(); logged < 1200 || copied > 0 {
		t.Fatalf("of %d pages %d are copied", logged, copied)
	}
	write(5000)
	testkit.Eventually(t, 20*time.Second, func() error {
		if look(); copied < 6000 {
			return fmt.Errorf("of %d pages %d are copied", logged, copied)
		}
		return nil
	})
	if logged > 7000 {
		t.Fatalf("a commit has copied the log, of %d pages", logged)
	}
	testkit.Eventually(t, 20*time.Second, func() error {
		write(1)
		if look(); logged > 1000 {
			return fmt.Errorf("the log has %d pages, and was copied whole", logged)
		}
		return nil
	})
}
