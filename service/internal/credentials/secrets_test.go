package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"SECRET_Y": "hunter2-from-the-environment", "SHORT": "hunter2", "EMPTY": ""}[name]
	return v, ok
}

func TestReadSecrets(t *testing.T) {
	t.Parallel()
	path := file(t, `
- {key: x-1, source: courier-x, secret: hunter2-hunter2-old, not_after: 2026-02-01T00:00:00Z}
- {key: x-2, source: courier-x, secret: hunter2-hunter2-new, not_before: 2026-01-25T00:00:00+01:00}
- {source: courier-y, secret_env: SECRET_Y}
- {secret: hunter2-hunter2-all}
`)
	s, err := ReadSecrets(path, lookup, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.All) != 4 || s.All[0].KeyID != "x-1" || s.All[1].Source != "courier-x" || s.All[1].NotBefore.UTC().Hour() != 23 ||
		string(s.All[2].Value) != "hunter2-from-the-environment" || s.All[3].Source != "" {
		t.Errorf("read %+v", s.All)
	}
	notes := strings.Join(s.Notes, "\n")
	if len(s.Notes) != 2 || !strings.Contains(notes, `:2:3: secret "x-1" of source "courier-x" has expired at 2026-02-01T00:00:00Z`) ||
		!strings.Contains(notes, ":5:3: a secret has no source: it may sign for every source") {
		t.Errorf("notes: %s", notes)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err = ReadSecrets(path, lookup, now); err != nil || !strings.Contains(strings.Join(s.Notes, "\n"), "(mode & 077 is 044): chmod 600") {
		t.Errorf("%v, notes %v", err, s.Notes)
	}
	if s, err = ReadSecrets(file(t, `[{source: x, secret: hunter2-hunter2-old, not_after: 2026-02-26T12:00:00Z}]`), lookup, now); err != nil ||
		!strings.Contains(strings.Join(s.Notes, "\n"), "no secret is valid now") {
		t.Errorf("%v, %v", err, s)
	}
}

func TestReadSecretsRefuses(t *testing.T) {
	t.Parallel()
	const good = "secret: hunter2-hunter2-old"
	many := strings.Builder{}
	for i := range 65 {
		fmt.Fprintf(&many, "- {source: x, secret: hunter2-hunter2-%d}\n", i)
	}
	for _, test := range []struct{ name, text, want string }{
		{"mapping", good, ":1:1: this must be a list"},
		{"unknown key", "- {sorce: x, " + good + "}", ":1:4: unknown key (did you mean source?)"},
		{"no secret", "- {source: x}", ":1:3: give each secret by one of secret and secret_env"},
		{"both", "- {source: x, secret_env: SECRET_Y, " + good + "}", ":1:3: give each secret by one of"},
		{"short", "- {source: x, secret: hunter2}", ":1:23: a secret has 16 to 4096 bytes"},
		{"long", "- {source: x, secret: " + strings.Repeat("hunter2", 600) + "}", ":1:23: a secret has 16 to 4096 bytes"},
		{"number", "- {source: x, secret: 12345678901234567890}", ":1:23: this must be a text"},
		{"line end", "- source: x\n  secret: |\n    hunter2-hunter2-old\n", ":2:11: a secret has no space"},
		{"no variable", "- {source: x, secret_env: NONE}", ":1:27: there is no such environment variable"},
		{"empty variable", "- {source: x, secret_env: EMPTY}", ":1:27: there is no such environment variable"},
		{"short variable", "- {source: x, secret_env: SHORT}", ":1:27: a secret has 16 to 4096 bytes"},
		{"same key", "- {key: a, source: x, " + good + "}\n- {key: a, source: x, secret_env: SECRET_Y}", ":2:9: this key is there twice: first in line 1"},
		{"same secret", "- {source: x, " + good + "}\n- {source: y, " + good + "}", ":2:23: this secret is there twice: first in line 1"},
		{"empty source", "- {source: '', " + good + "}", ":1:12: this must have 1 to 255 bytes"},
		{"never valid", "- {source: x, not_after: 2026-01-01T00:00:00Z, not_before: 2026-01-01T00:00:00Z, " + good + "}", ":1:26: not_after must be later"},
		{"no time", "- {source: x, not_after: tomorrow, " + good + "}", ":1:26: this must be a time"},
		{"too many to try", many.String(), ":1:3: key is missing: of more than 64 secrets each needs one"},
	} {
		path := file(t, test.text)
		_, err := ReadSecrets(path, lookup, now)
		if err == nil || !strings.HasPrefix(err.Error(), path+test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s and no secret", test.name, err, test.want)
		}
	}
	if _, err := ReadSecrets("/missing/file", lookup, now); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
