package routefile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxScalar = 64 << 10 // bytes of a text
	maxNumber = 400      // characters, and the size of an exponent
)

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	// oddNumber is what some version of YAML takes for a number, and JSON does not.
	oddNumber = regexp.MustCompile(`^[-+]?(0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?)$`)
	notFinite = regexp.MustCompile(`^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
)

// scalar returns the value of a scalar: nil, a bool, a json.Number or a string; or what is wrong with it. It is that of YAML 1.2, so that
// on, off, yes and no are texts; what is a number in one version of YAML or in some programs only, is refused.
func scalar(n *yaml.Node) (value any, wrong string) {
	if len(n.Value) > maxScalar {
		return nil, fmt.Sprintf("a text of %d bytes: %d are the most", len(n.Value), maxScalar)
	}
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return n.Value, ""
	}
	switch n.Value {
	case "", "~", "null", "Null", "NULL":
		return nil, ""
	case "true", "True", "TRUE":
		return true, ""
	case "false", "False", "FALSE":
		return false, ""
	}
	if strings.IndexByte("0123456789+-.", n.Value[0]) < 0 {
		return n.Value, ""
	}
	switch {
	case jsonNumber.MatchString(n.Value):
		return number(n.Value)
	case notFinite.MatchString(n.Value):
		return nil, quote(n.Value) + " is no number that can be used: it is not finite"
	case oddNumber.MatchString(n.Value):
		return nil, quote(n.Value) + " is a number for some programs and a text for others: write it as JSON does, without _, leading zeros and prefixes, or put it in quotes"
	}
	return n.Value, ""
}

// number bounds a number: what is done with it exactly takes time and memory that grow with its exponent.
func number(text string) (value any, wrong string) {
	if _, err := strconv.ParseFloat(text, 64); err != nil || len(text) > maxNumber {
		return nil, quote(text) + " is too large for a number: put it in quotes if it is a text"
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(text[i+1:]); err != nil || exponent < -maxNumber {
			return nil, quote(text) + " is too small for a number: put it in quotes if it is a text"
		}
	}
	return json.Number(text), ""
}

// keyOf returns the text of a scalar that is a key, or what is wrong with it.
func keyOf(n *yaml.Node) (key, wrong string) {
	value, wrong := scalar(n)
	switch value := value.(type) {
	case string:
		if n.Value == "<<" && n.Style == 0 {
			return "", "merge keys (<<) are not supported: write the keys out, or refer to the whole mapping by its anchor"
		}
		return value, ""
	case json.Number:
		if !strings.ContainsAny(value.String(), ".eE") {
			return value.String(), ""
		}
	case nil:
		if wrong != "" {
			return "", wrong
		}
		if n.Value == "" {
			return "", "a key is missing before this colon"
		}
	}
	return "", "the key " + quote(n.Value) + " is no text: put it in quotes"
}
