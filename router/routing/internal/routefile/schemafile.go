package routefile

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of schema files.
const (
	maxSchemaFile  = 1 << 20  // bytes of one
	maxSchemaTotal = 10 << 20 // bytes of all
	maxSchemaFiles = 10_000
)

// schemaFiles reads the schema files that a routing file names, each once.
type schemaFiles struct {
	open  func(path string) ([]byte, error)
	nodes int // so far, with those of the routing file
	bytes int
	docs  map[string]any
	sums  [][sha256.Size]byte // in the order in which they are named for the first time
}

// read returns the schema in a file, or what is wrong with it, with the places in that file: once, whoever names it again.
func (f *schemaFiles) read(name string) (doc any, wrong []string) {
	if known, done := f.docs[name]; done {
		return known, nil
	}
	doc, err := f.load(name)
	f.docs[name] = doc
	var faulty *Error
	switch {
	case err == nil:
		return doc, nil
	case !errors.As(err, &faulty):
		return nil, []string{"schema file " + quote(name) + ": " + err.Error()}
	}
	for _, fault := range faulty.Faults[:min(len(faulty.Faults), maxListed)] {
		at := ""
		if fault.Pos != (Pos{}) {
			at = " at " + fault.Pos.String()
		}
		wrong = append(wrong, "schema file "+quote(name)+at+": "+fault.Message)
	}
	return nil, wrong
}

func (f *schemaFiles) load(name string) (doc any, err error) {
	switch {
	case !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00"):
		return nil, errors.New("a path is relative to the routing file and stays in its folder, with / between its parts, none of which is one dot or two")
	case f.open == nil:
		return nil, errors.New("schema files cannot be read here: write the schema itself")
	case len(f.sums) == maxSchemaFiles:
		return nil, fmt.Errorf("there are more than %d schema files", maxSchemaFiles)
	}
	parse, known := map[string]func(*source) (*yaml.Node, *Fault){".json": parseJSON, ".yaml": parseYAML, ".yml": parseYAML}[path.Ext(name)]
	if !known {
		return nil, errors.New("its name has to end with .json, .yaml or .yml")
	}
	text, err := f.open(name)
	if err != nil {
		return nil, cause(err)
	}
	if f.bytes += len(text); f.bytes > maxSchemaTotal {
		return nil, fmt.Errorf("the schema files have more than %d bytes together", maxSchemaTotal)
	}
	f.sums = append(f.sums, sha256.Sum256(text))
	src, fault := readText(text, maxSchemaFile)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	root, fault := parse(src)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	t := newTree(src, f.nodes)
	value, _ := t.value(root, 0)
	f.nodes = t.nodes
	if len(t.faults) > 0 {
		return nil, NewError(name, t.faults)
	}
	return value, NewError(name, check(schema().payload, root, value))
}

// cause returns what is wrong with a file, without its name, which may be any number of folders long.
func cause(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return errors.New(strings.Trim(quote(err.Error()), "`"))
}
