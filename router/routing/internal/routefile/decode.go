package routefile

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/eventing"
)

// item is a node with its value.
type item struct {
	key, node *yaml.Node // key: nil in lists
	value     any
}

func (i item) pos() Pos { return Pos{i.node.Line, i.node.Column} }

// name returns the key.
func (i item) name() Name { return Name{keyText(i.key), Pos{i.key.Line, i.key.Column}} }

// textName returns the value, which is a text.
func (i item) textName() Name { return Name{i.text(), i.pos()} }

func (i item) text() string {
	text, _ := i.value.(string)
	return text
}

func (i item) bool() bool {
	is, _ := i.value.(bool)
	return is
}

func (i item) number() float64 {
	number, _ := i.value.(json.Number)
	f, _ := number.Float64() // it has been read as one
	return f
}

// whole returns a whole number that the schema has bounded, be it written 10, 10.0 or 1e1.
func (i item) whole() int { return int(i.number()) }

// fields are the entries of a mapping, in the file's order.
func (i item) fields() iter.Seq[item] {
	values, _ := i.value.(map[string]any)
	return func(yield func(item) bool) {
		if i.node.Kind != yaml.MappingNode {
			return
		}
		for k := 0; k+1 < len(i.node.Content); k += 2 {
			key := i.node.Content[k]
			if !yield(item{key, deref(i.node.Content[k+1]), values[keyText(key)]}) {
				return
			}
		}
	}
}

// elements are those of a list.
func (i item) elements() iter.Seq[item] {
	values, _ := i.value.([]any)
	return func(yield func(item) bool) {
		for k, v := range values {
			if !yield(item{nil, deref(i.node.Content[k]), v}) {
				return
			}
		}
	}
}

// names are the texts of a list.
func (i item) names() []Name {
	var list []Name
	for e := range i.elements() {
		list = append(list, e.textName())
	}
	return list
}

// words are the texts of a list, not nil.
func (i item) words() []string {
	list := []string{}
	for e := range i.elements() {
		list = append(list, e.text())
	}
	return list
}

// decoder makes a File of a document that the schema has nothing against.
type decoder struct {
	file   *File
	src    *source
	exprs  map[*yaml.Node]Expr // those that aliases may repeat
	files  schemaFiles
	faults []Fault
}

func (d *decoder) fault(at Pos, format string, args ...any) {
	if len(d.faults) < maxFaults {
		d.faults = append(d.faults, Fault{at, fmt.Sprintf(format, args...)})
	}
}

func (d *decoder) decode(root item) {
	for section := range root.fields() {
		switch name := section.name().Text; name {
		case "consumers":
			for i := range section.fields() {
				d.file.Consumers = append(d.file.Consumers, d.consumer(i))
			}
		case "events":
			for i := range section.fields() {
				d.file.Events = append(d.file.Events, d.event(i))
			}
		case "definitions":
			d.file.Definitions, _ = section.value.(map[string]any)
			for i := range section.fields() {
				d.file.Defined = append(d.file.Defined, i.name())
			}
		case "matrix":
			for i := range section.fields() {
				d.file.Matrix = append(d.file.Matrix, Row{i.name(), i.names()})
			}
		case "actions":
			for i := range section.fields() {
				d.cells(i)
			}
		case "modifiers":
			d.modifiers(section)
		case "lookups":
			for i := range section.fields() {
				d.file.Lookups = append(d.file.Lookups, d.lookup(i))
			}
		case "retention":
			for i := range section.fields() {
				d.file.Retention = append(d.file.Retention, d.retention(i))
			}
		}
	}
}

const maxExpression = 4 << 10 // bytes

// expression returns a condition, whose text may be a boolean, or another expression.
func (d *decoder) expression(i item) *Expr {
	if is, constant := i.value.(bool); constant {
		return &Expr{Text: fmt.Sprint(is), Pos: i.pos()}
	}
	if n := len(i.text()); n > maxExpression {
		d.fault(i.pos(), "%s has %d bytes: %d are the most", quote(i.name().Text), n, maxExpression)
	}
	if strings.TrimSpace(i.text()) == "" {
		d.fault(i.pos(), "%s is empty", quote(i.name().Text))
	}
	e, again := d.exprs[i.node]
	if !again {
		e = d.src.expression(i.node, i.text())
		d.exprs[i.node] = e
	}
	return &e
}

// period returns a period that is not zero.
func (d *decoder) period(i item) eventing.Period {
	p := d.anyPeriod(i)
	if p.IsZero() {
		d.fault(i.pos(), "%s has to be longer than nothing; leave it out for its default", quote(keyText(i.key)))
	}
	return p
}

// maxYears of a period keep dates and durations from overflowing.
const maxYears = 200

// anyPeriod returns a period that the schema has nothing against; it may be too long.
func (d *decoder) anyPeriod(i item) eventing.Period {
	p, err := eventing.ParsePeriod(i.text())
	if err != nil || p.Years > maxYears || p.Duration() > maxYears*365*24*time.Hour {
		d.fault(i.pos(), "%s is %s: %dy are the most", quote(keyText(i.key)), quote(i.text()), maxYears)
		return eventing.Period{Days: 1} // is not complained about again
	}
	return p
}

// params returns parameters with their values.
func (d *decoder) params(i item) []Param {
	var list []Param
	for p := range i.fields() {
		param := Param{Name: p.name(), ValuePos: p.pos(), Value: p.value}
		switch p.value.(type) {
		case []any:
			param.Value = p.words()
		case json.Number:
			if param.Value = p.number(); !exact(p.number(), p.node.Value) {
				d.fault(p.pos(), "%s has more digits than a number keeps: put it in quotes", quote(param.Text))
			}
		}
		list = append(list, param)
	}
	return list
}

// exact reports whether a number is small enough for all whole numbers of its size to be told apart, or has a fraction
// or an exponent, of which nobody expects that.
func exact(f float64, text string) bool {
	return math.Abs(f) < 1<<53 || strings.ContainsAny(text, ".eE")
}
