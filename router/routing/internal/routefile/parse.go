package routefile

import (
	"crypto/sha256"
	"encoding/hex"

	"go.yaml.in/yaml/v3"
)

// Parse reads a routing file: YAML 1.2, or JSON, in UTF-8. Its structure is what [JSONSchema] says; whether names refer to something, conditions
// compile and policies make sense is for others to check. name is for messages. open reads the schema
// files that the text names, by slash-separated paths below the folder of the routing file; with nil there may be none. The error is an [*Error].
//
// The bounds: 8 MB, 1,000,000 keys and values with what aliases repeat, 64 levels, texts of 64 KB, expressions of 4 KB, schema
// files of 1 MB each and 10 MB together. They bound the time, too: to a few seconds for the worst of texts.
func Parse(name string, text []byte, open func(path string) ([]byte, error)) (*File, error) {
	file := &File{Name: name}
	src, fault := readText(text, MaxBytes)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	root, fault := parseYAML(src)
	if fault != nil {
		return nil, NewError(name, []Fault{*fault})
	}
	t := newTree(src, 0)
	value, _ := t.value(root, 0)
	if len(t.faults) > 0 {
		return nil, NewError(name, t.faults)
	}
	if root.Kind != yaml.MappingNode {
		return nil, NewError(name, []Fault{{Pos{root.Line, root.Column}, "a routing file is a mapping that begins with `routing: 1`"}})
	}
	if faults := check(schema().file, root, value); len(faults) > 0 {
		return nil, NewError(name, faults)
	}
	d := decoder{file: file, src: src, exprs: map[*yaml.Node]Expr{}, files: schemaFiles{open: open, nodes: t.nodes, docs: map[string]any{}}}
	d.decode(item{node: root, value: value})
	if len(d.faults) > 0 {
		return nil, NewError(name, d.faults)
	}
	digest := sha256.New()
	digest.Write(text)
	for _, sum := range d.files.sums {
		digest.Write(sum[:])
	}
	file.Version = hex.EncodeToString(digest.Sum(nil))[:versionDigits]
	return file, nil
}

const versionDigits = 12
