package eventlog

import (
	"embed"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/waybill-go/waybill/internal/sqlstore"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// Migrations returns the steps of the log's schema: Up applies them, SQL returns them as text.
// Which have been applied is recorded in the table waybill_eventlog_version, apart from the
// library's other steps and from the application's. An application that has a table named
// events already needs a schema or a file of its own for the log.
func Migrations(d Dialect) sqlstore.Migrations {
	files, _ := fs.Sub(migrations, "migrations/"+string(d)) // the folders are compiled in
	kind := goose.DialectPostgres
	if d == SQLite {
		kind = goose.DialectSQLite3
	}
	return sqlstore.Migrations{Dialect: kind, FS: files, Table: "waybill_eventlog_version"}
}
