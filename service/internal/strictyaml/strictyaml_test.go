package strictyaml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFaultsHaveTheirPlace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "f:1:1: the file is empty"},
		{"syntax", "- name: a\n  at: [hunter2\n", "f:"},
		{"unknown anchor", "- name: *hunter2\n", "f:1:1: no YAML"},
		{"two documents", "- name: a\n---\n- name: b\n", "f:2:1: a second document"},
		{"no list", "name: a\n", "f:1:1: this must be a list"},
		{"empty list", "[]\n", "f:1:1: the list is empty"},
		{"long list", "[a, b, c]\n", "f:1:1: the list has 3 elements: 2 are the most"},
		{"no mapping", "- hunter2\n", "f:1:3: this must be a mapping"},
		{"unknown key", "- name: a\n  namee: hunter2\n", "f:2:3: unknown key (did you mean name?); the keys are name, at"},
		{"mistyped key", "- nam: hunter2\n", "f:1:3: unknown key (did you mean name?)"},
		{"merge key", "- <<: {name: hunter2}\n", "f:1:3: this must be a text"},
		{"twice", "- name: a\n  name: hunter2\n", "f:2:3: this key is there twice: first in line 1"},
		{"number", "- name: 12345\n", "f:1:9: this must be a text, and without quotes it is none"},
		{"null", "- name:\n", "f:1:8: this must be a text"},
		{"mapping for a text", "- name: {hunter2: a}\n", "f:1:9: this must be a text"},
		{"tag", "- name: !hunter2 a\n", "f:1:9: anchors, aliases and tags"},
		{"anchor", "- name: &hunter2 a\n", "f:1:9: anchors, aliases and tags"},
		{"empty name", "- name: \"\"\n", "f:1:9: this must have 1 to 8 bytes"},
		{"long name", "- name: hunter2hunter2\n", "f:1:9: this must have 1 to 8 bytes"},
		{"control character", `- name: "a\tb"`, "f:1:9: this must have no control characters"},
		{"no time", "- at: hunter2\n", "f:1:7: this must be a time"},
		{"no zone", "- at: 2026-01-01\n", "f:1:7: this must be a time"},
		{"not UTF-8", "- name: \xff\n", "f: not in UTF-8"},
		{"too large", strings.Repeat("#", MaxBytes+1), "f: more than"},
	} {
		f, err := Parse("f", []byte(test.text))
		if err == nil {
			for _, element := range f.Root().List(2) {
				fields, _ := element.Fields("name", "at")
				if v, ok := fields["name"]; ok {
					v.Name(8)
				}
				if v, ok := fields["at"]; ok {
					v.Time()
				}
			}
			err = f.Err()
		}
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q and nothing of the text", test.name, err, test.want)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("- a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil || f.Shared != 0 {
		t.Errorf("%v, shared %v", err, f.Shared)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if f, err = Open(path); err != nil || f.Shared != 0o040 {
		t.Errorf("%v, shared %v, want the group's", err, f.Shared)
	}
	if _, err := Open(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(path + "x"); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	f, err := Parse("f", []byte(strings.Repeat("- 1\n", 500)))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range f.Root().List(500) {
		v.Text()
	}
	if n := strings.Count(f.Err().Error(), "\n"); n != maxFaults-1 && n != maxFaults {
		t.Errorf("%d lines", n)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("- name: a\n  at: 2026-01-01T00:00:00Z\n")
	f.Add("a: [&x 1, *x]\n---\n")
	f.Fuzz(func(_ *testing.T, text string) {
		file, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		for _, e := range file.Root().List(10) {
			_, _ = e.Fields("name")
		}
		for _, e := range file.Root().Entries() {
			_, _ = e.Value.Scalar()
			_, _ = e.Value.Time()
		}
	})
}
