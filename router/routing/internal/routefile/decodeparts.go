package routefile

import (
	"strconv"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

func (d *decoder) consumer(i item) Consumer {
	c := Consumer{Name: i.name()}
	p := &c.Policy
	for f := range i.fields() {
		switch f.name().Text {
		case "guarantee":
			p.Guarantee = eventing.Guarantee(f.text())
		case "ordered":
			p.Ordered = f.bool()
		case "concurrency":
			p.Concurrency = f.whole()
		case "timeout":
			p.Timeout = d.duration(f)
		case "topic":
			c.Topic = f.text()
		case "retry":
			p.Retry = d.retry(f)
		case "breaker":
			p.Breaker = d.breaker(f)
		case "on_exhausted":
			p.OnExhausted = f.words()
		case "refuse_force":
			p.RefuseForce = f.bool()
		case "inbox_retention":
			p.InboxRetention = d.duration(f)
		case "dead_letter_retention":
			p.DeadLetterRetention = d.duration(f)
		case "parameters":
			c.Parameters = parameters(f)
		}
	}
	return c
}

// duration returns a period as a clock counts it.
func (d *decoder) duration(i item) time.Duration { return d.period(i).Duration() }

func (d *decoder) retry(i item) eventing.RetryPolicy {
	var p eventing.RetryPolicy
	for f := range i.fields() {
		switch f.name().Text {
		case "max_attempts":
			p.MaxAttempts = f.whole()
		case "base":
			p.Base = d.duration(f)
		case "multiplier":
			p.Multiplier = f.number()
		case "first_exponent":
			p.FirstExponent = f.whole()
		case "max":
			p.Max = d.duration(f)
		case "jitter":
			p.Jitter = f.number()
		case "jitter_of":
			if f.text() == "base" {
				p.JitterBasis = eventing.JitterOfBase
			}
		}
	}
	return p
}

func (d *decoder) breaker(i item) eventing.BreakerPolicy {
	var p eventing.BreakerPolicy
	for f := range i.fields() {
		switch f.name().Text {
		case "failures":
			p.Failures = f.whole()
		case "open_for":
			p.OpenFor = d.duration(f)
		}
	}
	return p
}

// parameters returns the declared ones, not nil.
func parameters(i item) []Parameter {
	list := []Parameter{}
	for p := range i.fields() {
		for kind := range p.fields() { // one
			declared := Parameter{Name: p.name(), Kind: Kind(kind.name().Text)}
			if _, some := kind.value.([]any); some {
				declared.Words = kind.words()
			}
			list = append(list, declared)
		}
	}
	return list
}

func (d *decoder) event(i item) Event {
	e := Event{Name: i.name()}
	for f := range i.fields() {
		switch f.name().Text {
		case "category":
			e.Category = f.textName()
		case "critical":
			e.Critical = d.expression(f)
		case "schema":
			e.Schemas = append(e.Schemas, d.schema(f, 1))
		case "schemas":
			for s := range f.fields() {
				version, _ := strconv.Atoi(s.name().Text) // nine digits at most
				e.Schemas = append(e.Schemas, d.schema(s, version))
			}
		}
	}
	return e
}

// schema returns a schema that is written in the file, or in the one that is named there.
func (d *decoder) schema(i item, version int) Schema {
	s := Schema{Version: version, Pos: i.pos(), Doc: i.value}
	if path, named := i.value.(string); named {
		s.Path = path
		var wrong []string
		s.Doc, wrong = d.files.read(path)
		for _, message := range wrong {
			d.fault(s.Pos, "%s", message)
		}
	}
	return s
}

func (d *decoder) cells(i item) {
	for c := range i.fields() {
		cell := Cell{Type: i.name(), Consumer: c.name()}
		for r := range c.elements() {
			cell.Rules = append(cell.Rules, d.rule(r))
		}
		d.file.Cells = append(d.file.Cells, cell)
	}
}

func (d *decoder) rule(i item) Rule {
	r := Rule{Pos: i.pos()}
	for f := range i.fields() {
		switch f.name().Text {
		case "when":
			r.When = d.expression(f)
		case "do":
			r.Do = f.textName()
		case "with":
			r.With = d.params(f)
		case "continue":
			r.Continue = f.bool()
		}
	}
	return r
}

func (d *decoder) modifiers(section item) {
	first := map[string]Pos{}
	for i := range section.elements() {
		m := d.modifier(i)
		if at, twice := first[m.Text]; twice {
			d.fault(m.Pos, "there are two modifiers %s: the first at %s", quote(m.Text), at)
		} else {
			first[m.Text] = m.Pos
		}
		d.file.Modifiers = append(d.file.Modifiers, m)
	}
}

func (d *decoder) modifier(i item) Modifier {
	var m Modifier
	for f := range i.fields() {
		switch f.name().Text {
		case "name":
			m.Name = f.textName()
		case "consumers":
			m.Consumers = f.names()
		case "events":
			m.Events = f.names()
		case "actions":
			m.Actions = f.names()
		case "when":
			m.When = d.expression(f)
		case "add":
			m.Add = d.params(f)
		case "remove":
			m.Remove = d.params(f)
		case "set":
			m.Set = d.params(f)
		}
	}
	return m
}

func (d *decoder) lookup(i item) Lookup {
	l := Lookup{Name: i.name()}
	for f := range i.fields() {
		switch f.name().Text {
		case "key":
			l.Keys = d.keys(f)
		case "schema":
			s := d.schema(f, 1)
			l.Schema = &s
		case "timeout":
			l.Timeout = d.period(f)
		case "cache":
			l.Cache = d.anyPeriod(f)
		case "cache_entries":
			l.CacheEntries = f.whole()
		case "on_error":
			l.OnError = OnError(f.text())
		case "default":
			l.Default, l.DefaultPos = f.value, f.pos()
		}
	}
	return l
}

// keys returns the key for all event types, or those by event type.
func (d *decoder) keys(i item) []Key {
	if _, one := i.value.(string); one {
		return []Key{{Type: Name{Any, i.pos()}, Expr: *d.expression(i)}}
	}
	var list []Key
	for f := range i.fields() {
		list = append(list, Key{f.name(), *d.expression(f)})
	}
	return list
}

func (d *decoder) retention(i item) Retention {
	r := Retention{Category: i.name()}
	if _, short := i.value.(string); short {
		r.Keep = d.period(i)
	}
	for f := range i.fields() {
		switch f.name().Text {
		case "keep":
			r.Keep = d.period(f)
		case "after":
			r.After = f.names()
		case "unless":
			r.Unless = f.names()
		}
	}
	return r
}
