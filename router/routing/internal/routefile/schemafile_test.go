package routefile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// named is a file whose first event type has this schema file.
func named(path string) string { return fmt.Sprintf("routing: 1\nevents: {a: {schema: %q}}\n", path) }

func TestSchemaFileFaults(t *testing.T) {
	t.Parallel()
	const path = "a path is relative to the routing file and stays in its folder, with / between its parts, none of which is one dot or two"
	files := map[string]string{
		"syntax.json":   "{\n  \"type\": object}",
		"short.json":    "{\"type\": ",
		"more.json":     "{}\n []",
		"twice.json":    "{\n  \"type\": \"object\",\n  \"type\": \"string\"\n}",
		"number.json":   "{\"maximum\": 1e999}",
		"deep.json":     strings.Repeat("[", 100) + strings.Repeat("]", 100),
		"deep2.json":    `{"const": ` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + "}",
		"list.json":     "[]",
		"empty.json":    " \n",
		"utf8.json":     "{\"a\": \"\xFF\"}",
		"type.json":     "{\n\t\"properties\": {\n\t\t\"é\": {\"type\": \"strin\"}}}",
		"nodes.yaml":    "const: [&a [" + strings.Repeat("1,", 999) + "]" + strings.Repeat(", *a", 599) + "]",
		"syntax.yaml":   "type: object\n- x\n",
		"type.yaml":     "# why\n\ntype: objct\nproperties: 3\n",
		"tag.yml":       "type: !x object\n",
		"empty.yml":     "",
		"two.yml":       "{}\n---\n{}\n",
		"large.json":    "{}" + strings.Repeat(" ", maxSchemaFile-1),
		"schema.txt":    "{}",
		"schema":        "{}",
		"folder/a.yaml": "type: array\nitems: [{}]\n",
	}
	open := func(name string) ([]byte, error) {
		if text, is := files[name]; is {
			return []byte(text), nil
		}
		return nil, &fs.PathError{Op: "open", Path: strings.Repeat("/very", 1000) + "/long/" + name, Err: fs.ErrNotExist}
	}
	const types = "`type` has to be `array`, `boolean`, `integer`, `null`, `number`, `object` or `string`"
	for name, want := range map[string][]string{
		"../a.json": {path}, "/a.json": {path}, "./a.json": {path}, "a/../b.json": {path}, "a//b.json": {path}, ".": {path}, `a\b.json`: {path}, "a\x00.json": nil,
		"missing.json":  {"file does not exist"},
		"schema.txt":    {"its name has to end with .json, .yaml or .yml"},
		"schema":        {"its name has to end with .json, .yaml or .yml"},
		"syntax.json":   {"at 2:11: not valid JSON: invalid character 'o' looking for beginning of value"},
		"short.json":    {"at 1:9: not valid JSON: unexpected end of JSON input"},
		"empty.json":    {"at 1:2: not valid JSON: unexpected end of JSON input"},
		"more.json":     {"at 2:2: not valid JSON: invalid character '[' after top-level value"},
		"twice.json":    {"at 3:3: the key `type` is there twice: first at 2:3"},
		"number.json":   {"at 1:13: `1e999` is too large for a number: put it in quotes if it is a text"},
		"deep.json":     {"at 1:65: nested more than 64 levels deep, aliases included"},
		"deep2.json":    {"at 1:74: nested more than 64 levels deep, aliases included"},
		"list.json":     {"at 1:1: the file has to be a mapping, not a list"},
		"utf8.json":     {"at 1:8: this is not UTF-8: save the file as UTF-8"},
		"type.json":     {"at 3:17: " + types + " (did you mean `string`?)"},
		"syntax.yaml":   {"at 2:1: not valid YAML: this does not go with what is before it: check the indentation; a text that only begins with a quote or a bracket has to be in quotes as a whole"},
		"type.yaml":     {"at 3:7: " + types + " (did you mean `object`?)", "at 4:13: `properties` has to be a mapping, not a number"},
		"tag.yml":       {"at 1:7: a text that begins with ! has to be in quotes; YAML's tags are not supported"},
		"empty.yml":     {"the file is empty"},
		"two.yml":       {"at 2:1: a second document begins here: a file has one"},
		"large.json":    {"the file has 1048577 bytes, more than 1048576"},
		"folder/a.yaml": {"at 2:8: `items` has to be true or false or a mapping, not a list"},
	} {
		for i, w := range want {
			if separator := ": "; strings.HasPrefix(w, "at ") {
				want[i] = "schema file " + quote(name) + " " + w
			} else {
				want[i] = "schema file " + quote(name) + separator + w
			}
		}
		text := named(name)
		if want == nil { // what YAML cannot say otherwise
			want = []string{"schema file `a\uFFFD.json`: " + path}
			text = "routing: 1\nevents: {a: {schema: \"a\\0.json\"}}\n"
		}
		got := faultsOf(t, text, open)
		for i := range want {
			want[i] = "2:22: " + want[i]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: got\n\t%s\nnot\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
	if got, want := faultsOf(t, named("a.json"), nil), []string{"2:22: schema file `a.json`: schema files cannot be read here: write the schema itself"}; !slices.Equal(got, want) {
		t.Errorf("without a reader: %v", got)
	}
	failing := func(string) ([]byte, error) { return nil, errors.New(strings.Repeat("no ", 1000)) }
	if got := faultsOf(t, named("a.json"), failing); len(got) != 1 || len(got[0]) > 200 || !strings.Contains(got[0], ": no no") {
		t.Errorf("another error: %v", got)
	}
	files["more.yaml"] = files["nodes.yaml"]
	two := "routing: 1\nevents: {a: {schemas: {1: nodes.yaml, 2: more.yaml}}}\n"
	if got := faultsOf(t, two, open); len(got) != 1 || !strings.Contains(got[0], "schema file `more.yaml`: "+tooMany) {
		t.Errorf("the files have a million keys and values together: %v", got)
	}
}

// Each file is read once, in the order in which they are named; what is wrong with it is told once.
func TestSchemaFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"b.json": {Data: []byte(`{"type": "object"}`)}, "c/a.yaml": {Data: []byte("&x {}")}, "bad.json": {Data: []byte("[]")}}
	var opened []string
	open := func(name string) ([]byte, error) {
		opened = append(opened, name)
		return files.ReadFile(name)
	}
	const text = "routing: 1\nlookups: {l: {key: x, schema: b.json}}\nevents: {e: {schemas: {2: c/a.yaml, 1: b.json}}}\n"
	f, err := Parse("routes.yaml", []byte(text), open)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"b.json", "c/a.yaml"}; !slices.Equal(opened, want) {
		t.Errorf("opened were %v, not %v", opened, want)
	}
	object := map[string]any{"type": "object"}
	want := []Schema{{2, Pos{3, 27}, map[string]any{}, "c/a.yaml"}, {1, Pos{3, 40}, object, "b.json"}}
	if got := f.Events[0].Schemas; !reflect.DeepEqual(got, want) || !reflect.DeepEqual(f.Lookups[0].Schema.Doc, object) {
		t.Errorf("got %+v", got)
	}
	if got := faultsOf(t, "routing: 1\nevents: {e: {schemas: {1: bad.json, 2: bad.json}}}\n", files.ReadFile); len(got) != 1 {
		t.Errorf("a bad file that is named twice: %v", got)
	}
}

func TestSchemaFilesAreBounded(t *testing.T) {
	t.Parallel()
	megabyte := []byte("{}" + strings.Repeat(" ", maxSchemaFile-2))
	open := func(string) ([]byte, error) { return megabyte, nil }
	text := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d: %d.json, ", i+1, i)
		}
		return "routing: 1\nevents: {a: {schemas: {" + b.String() + "}}}"
	}
	if _, err := Parse("routes.yaml", []byte(text(10)), open); err != nil {
		t.Error(err)
	}
	if got := faultsOf(t, text(11), open); len(got) != 1 || !strings.HasSuffix(got[0], "schema file `10.json`: the schema files have more than 10485760 bytes together") {
		t.Errorf("got %v", got)
	}
	small := func(string) ([]byte, error) { return []byte("{}"), nil }
	if got := faultsOf(t, text(maxSchemaFiles+1), small); len(got) != 1 || !strings.HasSuffix(got[0], "there are more than 10000 schema files") {
		t.Errorf("got %v", got)
	}
}

// JSON is read as encoding/json does it, also what is no YAML.
func TestJSONSchemaFile(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"a.json": {Data: []byte("\uFEFF{\r\n\t\"const\": [\"\\ud83d\\ude00\\/\", 1.50, -0, true, null, {\"\": []}, \"a\tb: c\"]\r\n}\n")}}
	files["a.json"].Data = []byte(strings.ReplaceAll(string(files["a.json"].Data), "a\tb", `a\tb`))
	f, err := Parse("routes.yaml", []byte(named("a.json")), files.ReadFile)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%#v", f.Events[0].Schemas[0].Doc)
	const want = `map[string]interface {}{"const":[]interface {}{"😀/", "1.50", "-0", true, interface {}(nil), map[string]interface {}{"":[]interface {}{}}, "a\tb: c"}}`
	if got != want {
		t.Errorf("got %s", got)
	}
	if keys := slices.Collect(maps.Keys(f.Events[0].Schemas[0].Doc.(map[string]any))); !slices.Equal(keys, []string{"const"}) {
		t.Errorf("its keys are %v", keys)
	}
}
