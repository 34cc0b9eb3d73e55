// Package schemas has the JSON Schemas (draft 2020-12) of what the gateway takes in and sends, one for each type and
// version. A published version does not change but for its texts: what would break a reader is a new one.
package schemas

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
)

//go:embed files/*.json
var files embed.FS

// Schema is the schema of a type's version.
type Schema struct {
	Type    string `json:"eventType"`
	Version int    `json:"version"`
	ID      string `json:"id"` // its $id
	Title   string `json:"title"`
	Text    []byte `json:"-"`
}

// Path returns where the API has it.
func (s Schema) Path() string { return "/schemas/" + s.Type + "/" + strconv.Itoa(s.Version) }

var all = load()

// All returns the schemas, ordered by type and version.
func All() []Schema { return slices.Clone(all) }

// Find returns the schema of a type's version.
func Find(eventType string, version int) (s Schema, ok bool) {
	i := slices.IndexFunc(all, func(s Schema) bool { return s.Type == eventType && s.Version == version })
	if i < 0 {
		return s, false
	}
	return all[i], true
}

var fileName = regexp.MustCompile(`^files/(.+)\.v([1-9][0-9]*)\.json$`)

// load reads the files, which are compiled in: whatever is wrong with them is a fault of ours.
func load() (all []Schema) {
	names, _ := fs.Glob(files, "files/*")
	for _, name := range names {
		parts := fileName.FindStringSubmatch(name)
		text, err := files.ReadFile(name)
		if err != nil || parts == nil {
			panic(fmt.Sprintf("schemas: %s: %v", name, err))
		}
		version, _ := strconv.Atoi(parts[2])
		var head struct {
			ID    string `json:"$id"`
			Title string
		}
		if err := json.Unmarshal(text, &head); err != nil {
			panic(fmt.Sprintf("schemas: %s: %v", name, err))
		}
		all = append(all, Schema{parts[1], version, head.ID, head.Title, text})
	}
	return all
}
