package routefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseJSON returns the value of a text in JSON as YAML would have it: that all JSON is YAML is not true of escapes.
func parseJSON(src *source) (*yaml.Node, *Fault) {
	if tooDense(src.text) {
		return nil, tooManyNodes()
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(src.text, new(json.RawMessage)); errors.As(err, &syntax) {
		at := src.pos(int(min(max(syntax.Offset-1, 0), int64(len(src.text)))))
		return nil, &Fault{at, "not valid JSON: " + strings.Trim(quote(syntax.Error()), "`")}
	}
	p := jsonParser{src: src, decoder: json.NewDecoder(bytes.NewReader(src.text)), at: Pos{1, 1}}
	p.decoder.UseNumber()
	root, err := p.value()
	if err != nil {
		return nil, &Fault{p.at, "not valid JSON: " + strings.Trim(quote(err.Error()), "`")}
	}
	return root, nil
}

type jsonParser struct {
	src     *source
	decoder *json.Decoder

	// Where the last token begins.
	offset int
	at     Pos
}

// token returns the next token.
func (p *jsonParser) token() (json.Token, error) {
	begin := int(p.decoder.InputOffset())
	for begin < len(p.src.text) && strings.IndexByte(" \t\r\n,:", p.src.text[begin]) >= 0 {
		begin++
	}
	passed := p.src.text[p.offset:begin]
	p.offset = begin
	if end := bytes.LastIndexByte(passed, '\n'); end >= 0 {
		p.at = Pos{p.at.Line + bytes.Count(passed, []byte{'\n'}), 1}
		passed = passed[end+1:]
	}
	p.at.Column += utf8.RuneCount(passed)
	return p.decoder.Token()
}

func (p *jsonParser) value() (*yaml.Node, error) {
	token, err := p.token()
	if err != nil {
		return nil, err
	}
	return p.node(token)
}

func (p *jsonParser) node(token json.Token) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.at.Line, Column: p.at.Column}
	switch token := token.(type) {
	case json.Delim:
		n.Kind = yaml.MappingNode
		if token == '[' {
			n.Kind = yaml.SequenceNode
		}
		return n, p.content(n)
	case string:
		n.Style, n.Value = yaml.DoubleQuotedStyle, token
	case json.Number:
		n.Value = token.String()
	case bool:
		n.Value = fmt.Sprint(token)
	case nil:
		n.Value = "null"
	}
	return n, nil
}

// content reads until a list or an object ends.
func (p *jsonParser) content(n *yaml.Node) error {
	for {
		token, err := p.token()
		if err != nil {
			return err
		}
		if end, is := token.(json.Delim); is && (end == ']' || end == '}') {
			return nil
		}
		child, err := p.node(token)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, child)
	}
}
