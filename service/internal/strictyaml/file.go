package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds a file.
const MaxBytes = 1 << 20

// maxFaults bounds what is told of one file.
const maxFaults = 20

// File is a document that is being read. Its methods and those of its values collect faults; [File.Err] has them.
type File struct {
	// Name is the path, for messages.
	Name string
	// Shared is not zero if others than the owner may use the file: these bits of its mode.
	Shared fs.FileMode

	root   *yaml.Node
	faults []error
}

// Open reads the file at a path: a regular file of at most [MaxBytes].
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	f, err := Parse(path, text)
	if err != nil {
		return nil, err
	}
	f.Shared = info.Mode().Perm() & 0o077
	return f, nil
}

// Parse reads a text: one YAML document in UTF-8, without anchors, aliases and tags.
func Parse(name string, text []byte) (*File, error) {
	switch {
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("%s: more than %d bytes", name, MaxBytes)
	case !utf8.Valid(text):
		return nil, fmt.Errorf("%s: not in UTF-8", name)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1:1: the file is empty", name)
	} else if err != nil {
		return nil, syntaxError(name, text, err)
	}
	if err := decoder.Decode(&another); err == nil {
		return nil, fmt.Errorf("%s:%d:%d: a second document: there may be one", name, another.Line, another.Column)
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(name, text, err)
	}
	return &File{Name: name, root: document.Content[0]}, nil
}

var syntaxLine = regexp.MustCompile(`line (\d+)`)

// syntaxError says where the text stops being YAML. The parser's own words may repeat the text.
func syntaxError(name string, text []byte, err error) error {
	line, column := 1, 1
	if m := syntaxLine.FindStringSubmatch(err.Error()); m != nil {
		line, _ = strconv.Atoi(m[1])
	}
	lines := strings.Split(string(text), "\n")
	if line = min(max(line, 1), len(lines)); line > 0 {
		column = len(lines[line-1]) - len(strings.TrimLeft(lines[line-1], " ")) + 1
	}
	return fmt.Errorf("%s:%d:%d: no YAML here, or just before: check indentation and quotes; a text that begins with * & ! %% @ or ` has to be in quotes", name, line, column)
}

// Root is the document's value.
func (f *File) Root() Value { return Value{f, f.root} }

// Err returns the faults so far, each with its place, or nil.
func (f *File) Err() error { return errors.Join(f.faults...) }

func (f *File) fault(n *yaml.Node, message string) {
	if len(f.faults) == maxFaults {
		f.faults = append(f.faults, fmt.Errorf("%s: and more", f.Name))
	}
	if len(f.faults) < maxFaults {
		f.faults = append(f.faults, fmt.Errorf("%s:%d:%d: %s", f.Name, n.Line, n.Column, message))
	}
}
