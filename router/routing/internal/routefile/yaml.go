package routefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxNodes bounds the keys and values of a file and its schema files together, each counted as often as aliases repeat it.
const maxNodes = 1_000_000

// parseYAML returns the only document of a text.
func parseYAML(src *source) (*yaml.Node, *Fault) {
	if tooDense(src.text) {
		return nil, tooManyNodes()
	}
	document, more, err := readYAML(bytes.NewReader(src.text))
	switch {
	case err != nil:
		return nil, syntaxFault(src, err)
	case document == nil || len(document.Content) != 1 || empty(document.Content[0]):
		return nil, &Fault{Message: "the file is empty"}
	case more != nil:
		return nil, &Fault{Pos: Pos{more.Line, more.Column}, Message: "a second document begins here: a file has one"}
	}
	return document.Content[0], nil
}

func tooManyNodes() *Fault {
	return &Fault{Message: fmt.Sprintf("the file has more than %d keys and values, those that aliases repeat included", maxNodes)}
}

// empty reports whether nothing is written where a node is.
func empty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Anchor == ""
}

// tooDense reports whether a text has so much that may begin or end a node that it cannot be within the bound. It is cheap,
// and parsing takes two hundred bytes a node.
func tooDense(text []byte) bool {
	count := 0
	for i, c := range text {
		switch c {
		case ',', '[', '{', ':':
			count++
		case '-', '?':
			if i+1 == len(text) || text[i+1] <= ' ' {
				count++
			}
		}
	}
	return count > maxNodes+maxNodes/2
}

// readYAML returns the first document, nil if there is none, and the second.
func readYAML(r io.Reader) (first, second *yaml.Node, err error) {
	defer func() {
		if failure := recover(); failure != nil { // the parser has asserts on how comments are told apart
			err = fmt.Errorf("yaml: the comments cannot be read: %v", failure)
		}
	}()
	decoder := yaml.NewDecoder(r)
	read := func() (*yaml.Node, error) {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		return &document, nil
	}
	if first, err = read(); first == nil || err != nil {
		return nil, nil, err
	}
	second, err = read()
	return first, second, err
}

// problem is what is said about text that is no YAML.
var problem = regexp.MustCompile(`^yaml: (?:line (\d+): )?((?s).*)$`)

// syntaxFault says in other words what the parser says, and where.
func syntaxFault(src *source, err error) *Fault {
	match := problem.FindStringSubmatch(err.Error())
	if match == nil {
		match = []string{"", "", err.Error()}
	}
	line, _ := strconv.Atoi(match[1]) // 0 if there is none
	if placeless.MatchString(match[2]) {
		if found, sure := lineOf(src, match[2]); sure || line == 0 {
			line = found
		}
	}
	line = min(max(line, 1), len(src.lines))
	for _, h := range hints {
		if strings.HasPrefix(match[2], h.problem) {
			return &Fault{src.start(line), "not valid YAML: " + h.message}
		}
	}
	return &Fault{src.start(line), "not valid YAML: " + strings.Trim(quote(match[2]), "`")}
}

// placeless are the problems for which the parser names no line, or that of the beginning of something large.
var placeless = regexp.MustCompile(`^(did not find expected (key|'|node)|unknown anchor|found unexpected end)`)

// maxReread bounds, in bytes, what is parsed again to find out where a problem is.
const maxReread = 2 << 20

// lineOf returns the line of a problem: the first one that is needed to have it, looking back from where the parser
// stopped; or where the bound is reached.
func lineOf(src *source, what string) (line int, sure bool) {
	stop := &byteReader{text: src.text}
	_, _, _ = readYAML(stop) // fails as before
	line = src.pos(len(bytes.TrimRight(src.text[:stop.next], " \t\r\n"))).Line
	for budget := maxReread; line > 1; line-- {
		before := src.text[:src.lines[line-1]]
		if budget -= len(before); budget < 0 {
			return line, false
		}
		_, _, err := readYAML(bytes.NewReader(before))
		if err == nil || !strings.HasSuffix(err.Error(), what) {
			break
		}
	}
	return line, true
}

// byteReader hands out single bytes, and so knows how many were needed.
type byteReader struct {
	text []byte
	next int
}

func (r *byteReader) Read(b []byte) (int, error) {
	if r.next == len(r.text) {
		return 0, io.EOF
	}
	b[0] = r.text[r.next]
	r.next++
	return 1, nil
}

// hints are the parser's problems in the words of who writes the file.
var hints = []struct{ problem, message string }{
	{"mapping values are not allowed", "a key, or a colon and a space, cannot stand here: check the indentation, and put texts with `: ` in quotes"},
	{"did not find expected key", "this does not go with what is before it: check the indentation; a text that only begins with a quote or a bracket has to be in quotes as a whole"},
	{"did not find expected '-'", "the list does not go on here: check the indentation"},
	{"did not find expected ',' or ']'", "a list in brackets has commas between its elements and ends with `]`; put texts with any of [ ] { } , in quotes"},
	{"did not find expected ',' or '}'", "a mapping in braces has commas between its entries and ends with `}`; put texts with any of [ ] { } , in quotes"},
	{"did not find expected node content", "a value is missing here; a text that begins with any of , ] } has to be in quotes"},
	{"did not find expected alphabetic", "a text that begins with any of * & ! has to be in quotes"},
	{"did not find the expected '>'", "a text that begins with ! has to be in quotes"},
	{"did not find expected comment or line break", "a text that begins with any of | > ! has to be in quotes"},
	{"unknown anchor", "there is no such anchor before; a text that begins with * has to be in quotes"},
	{"could not find expected ':'", "a key needs a colon after it; a text goes on only in lines that are indented further"},
	{"found unexpected end of stream", "the quote that begins here does not end"},
	{"found character that cannot start any token", "a text that begins with any of % @ ` ! has to be in quotes; tabs cannot indent"},
	{"found a tab character", "a tab: indent with spaces"},
	{"block sequence entries are not allowed", "a list cannot begin here: begin it on a line of its own, or put a text that begins with - in quotes"},
	{"found unknown escape character", "an unknown escape: in double quotes a backslash is written twice, in single quotes once"},
	{"found invalid Unicode character", "an escape that is no character: from U+10000 on, write \\U and eight digits"},
	{"exceeded max depth", "it is nested too deeply"},
}
