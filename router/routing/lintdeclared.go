package routing

import (
	"slices"
	"strings"

	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// lookups looks for lookups without an error policy, and for what of them nobody asks for.
func (l *linter) lookups() {
	for i, one := range l.table.lookups {
		src := one.src
		if src.OnError == routefile.Undeclared {
			l.warn(src.Pos, "lookup-without-policy",
				"lookup %s does not say what becomes of an event if it fails: add \"on_error: retry\", which is what happens now, \"on_error: skip\", or \"on_error: default\" with a default", src.Text)
		}
		asked := map[*routefile.Key]bool{}
		for _, t := range l.types {
			if k := t.keys[i].src; k != nil {
				asked[k] = true
			}
		}
		if len(asked) == 0 {
			l.warn(src.Pos, "lookup-unused", "no condition on an event that is delivered uses lookup %s: remove it, or use it", src.Text)
			continue
		}
		for k := range src.Keys {
			if key := &src.Keys[k]; !asked[key] {
				l.info(key.Type.Pos, "lookup-key-unused", "no condition on %s asks for lookup %s, so this key is neither used nor checked: remove it", ofTypes(key.Type), src.Text)
			}
		}
	}
}

func ofTypes(n routefile.Name) string {
	if isAny(n) {
		return "the other types"
	}
	return n.Text
}

// schemas looks for types without any, and for definitions that no schema refers to.
func (l *linter) schemas() {
	refers := map[string]bool{}
	var follow func(doc any)
	follow = func(doc any) {
		switch doc := doc.(type) {
		case map[string]any:
			for key, value := range doc {
				if name, is := definition(key, value); is && !refers[name] {
					refers[name] = true
					follow(l.table.file.Definitions[name])
				}
				follow(value)
			}
		case []any:
			for _, value := range doc {
				follow(value)
			}
		}
	}
	for _, t := range l.types {
		if len(t.src.Schemas) == 0 {
			l.info(t.src.Pos, "type-without-schema", "%s has no schema: its payloads are not checked, nor are the fields that conditions on it name; add \"schema:\" to it", t.src.Text)
		}
		for _, s := range t.src.Schemas {
			follow(s.Doc)
		}
	}
	for _, one := range l.table.lookups {
		if one.src.Schema != nil {
			follow(one.src.Schema.Doc)
		}
	}
	for _, name := range l.table.file.Defined {
		if !refers[name.Text] {
			l.warn(name.Pos, "definition-unused", "no schema refers to definition %s: remove it, or refer to it as {$ref: \"#/$defs/%s\"}", name.Text, name.Text)
		}
	}
}

// definition returns the name of the definition that a keyword of a schema refers to. Names of definitions need no escapes.
func definition(keyword string, value any) (name string, is bool) {
	text, is := value.(string)
	if keyword != "$ref" || !is {
		return "", false
	}
	name, is = strings.CutPrefix(text, "#/$defs/")
	name, _, _ = strings.Cut(name, "/")
	return name, is
}

// parameters looks for parameters and their words that a consumer declares, and no rule uses.
func (l *linter) parameters() {
	used := l.usedWords()
	for _, c := range l.table.order {
		words := used[c.src.Text]
		for _, p := range c.src.Parameters {
			if !words.rules[p.Text] {
				l.warn(p.Pos, "parameter-unused", "no rule gives %s a parameter %s: remove it, or give it to a rule", c.src.Text, p.Text)
				continue
			}
			idle := slices.DeleteFunc(slices.Clone(p.Words), func(w string) bool { return words.words[word{p.Text, w}] })
			if len(idle) > 0 {
				l.info(p.Pos, "word-unused", "neither a rule nor a modifier ever puts %s into %s of %s", listed(idle), p.Text, c.src.Text)
			}
		}
	}
}

// vocabulary is what the rules and modifiers of a consumer say.
type vocabulary struct {
	rules map[string]bool // parameters that a rule has
	words map[word]bool
}

func (l *linter) usedWords() map[string]vocabulary {
	all := map[string]vocabulary{}
	for _, c := range l.table.order {
		all[c.src.Text] = vocabulary{map[string]bool{}, map[word]bool{}}
	}
	use := func(v vocabulary, params []routefile.Param) {
		for _, p := range params {
			texts, _ := wordsOf(p.Value)
			for _, w := range texts {
				v.words[word{p.Text, w}] = true
			}
		}
	}
	for _, cell := range l.table.file.Cells {
		v := all[cell.Consumer.Text]
		for _, r := range cell.Rules {
			use(v, r.With)
			for _, p := range r.With {
				v.rules[p.Text] = true
			}
		}
	}
	type says struct {
		consumer *consumer
		modifier *routefile.Modifier
	}
	known := map[says]bool{}
	l.eachRule(func(c *cell, r *rule) {
		if len(c.consumer.src.Parameters) == 0 {
			return
		}
		for _, m := range r.modifiers {
			if s := (says{c.consumer, m.src}); !known[s] {
				known[s] = true
				use(all[c.consumer.src.Text], m.src.Set)
				use(all[c.consumer.src.Text], m.src.Add)
			}
		}
	})
	return all
}
