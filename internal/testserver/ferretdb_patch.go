package testserver

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ferretVersion is what the corrections are for.
const ferretVersion = "v1.24.2"

//go:embed ferretdb_where.go.txt
var whereSource string

// correction is a change to a source file of FerretDB, which has the text so many times; 0: the
// file is new.
type correction struct {
	file     string
	times    int
	old, new string
}

// corrections make FerretDB 1.24 keep the promise of MongoDB that stores rely on, and as
// fast as they need it. On MongoDB itself all of this holds.
var corrections = []correction{
	// Of a filter, SQLite evaluates what it can: the index of _id, and comparisons with strings. FerretDB
	// itself needs 0.2 ms for each document of the collection.
	{"internal/backends/sqlite/where.go", 0, "", whereSource},
	{"internal/backends/sqlite/collection.go", 1, "\tq += whereClause\n", "\twhereClause, args = where(params.Filter)\n\tq += whereClause\n"},
	{
		"internal/backends/sqlite/metadata/metadata.go", 1,
		`IDColumn = DefaultColumn + "->'$._id'"`, "IDColumn = DefaultColumn + `->\"_id\"`", // as the index says
	},
	// That each iterator is closed is FerretDB's own concern: to note the stack of each takes
	// a tenth of its time.
	{"internal/util/resource/resource.go", 1, "\tname := profileName(obj)\n", "\tif true {\n\t\treturn\n\t}\n\tname := profileName(obj)\n"},
	{"internal/util/resource/resource.go", 1, "\tp := pprof.Lookup(profileName(obj))\n", "\tif true {\n\t\treturn\n\t}\n\tp := pprof.Lookup(profileName(obj))\n"},
	// A message for a log that nobody reads, made for each query; and nested fields are for where to see, too.
	{"internal/handler/msg_find.go", 1, "\th.L.DebugContext(ctx, fmt.Sprintf(\"Converted %+v for %+v to %+v.\", params, cInfo, qp))\n", "\t_ = fmt.Sprint\n"},
	{"internal/handler/msg_find.go", 1, "if !h.EnableNestedPushdown && params.Filter != nil {", "if false {"},
	// A command with a hundred updates holds a hundred connections to the end, and waits for
	// one more for ever.
	{
		"internal/handler/msg_update.go", 1,
		"\t\tresult, err := common.UpdateDocument(ctx, c, \"update\", iter, &u)\n",
		"\t\tresult, err := common.UpdateDocument(ctx, c, \"update\", iter, &u)\n\t\tcloser.Close()\n",
	},
	// The change of a document is atomic. FerretDB finds it, changes it and writes it back
	// without a lock: of conditional updates at the same time, all would win.
	{
		"internal/clientconn/conn.go", 1,
		"\t\treturn cmd.Handler(connCtx, msg)\n",
		"\t\tdefer lockDatabase(msg, command)()\n\t\treturn cmd.Handler(connCtx, msg)\n",
	},
	// So corrected, it is not what stores warn of.
	{"internal/handler/msg_buildinfo.go", 1, "\t\t\t\"ferretdbVersion\", version.Get().Version,\n", ""},
	{"internal/clientconn/conn.go", 1, "import (\n\t\"bufio\"\n", "import (\n\t\"sync\"\n\t\"bufio\"\n"},
	{
		"internal/clientconn/conn.go", 1, "\n// logResponse logs", `
// writers has a mutex for each database.
var writers sync.Map

// lockDatabase has the writers of a database take turns. It returns what ends the turn.
func lockDatabase(msg *wire.OpMsg, command string) func() {
	switch command {
	case "insert", "update", "delete", "findAndModify", "findandmodify", "create", "createIndexes":
	default:
		return func() {}
	}
	database := ""
	if raw, err := msg.RawDocument(); err == nil {
		if doc, err := raw.Decode(); err == nil {
			database, _ = doc.Get("$db").(string)
		}
	}
	mu, _ := writers.LoadOrStore(database, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	return mu.(*sync.Mutex).Unlock
}

// logResponse logs`,
	},
}

// apply makes the corrections in a copy of the source. It fails if that is not what they
// were made for.
func apply(corrections []correction, source string) error {
	for _, c := range corrections {
		path := filepath.Join(source, filepath.FromSlash(c.file))
		text, err := os.ReadFile(path)
		if c.times == 0 && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("correct ferretdb: %w", err)
		}
		if n := strings.Count(string(text), c.old); n != c.times && (c.times > 0 || len(text) > 0) {
			return fmt.Errorf("correct ferretdb: %s has %q %d times, not %d: the correction is for %s", c.file, c.old, n, c.times, ferretVersion)
		}
		corrected := strings.ReplaceAll(string(text), c.old, c.new)
		if c.times == 0 {
			corrected = c.new
		}
		if err := os.WriteFile(path, []byte(corrected), 0o600); err != nil {
			return fmt.Errorf("correct ferretdb: %w", err)
		}
	}
	return nil
}
