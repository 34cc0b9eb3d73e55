package credentials

import (
	"strings"
	"testing"
)

func TestReadTokens(t *testing.T) {
	t.Parallel()
	text, hash := MakeToken()
	all, notes, err := ReadTokens(file(t, "- {name: grafana, token: hunter2-hunter2-plain, scopes: [read]}\n- {name: anna, token: '"+hash+"', scopes: [read, operate]}\n"))
	if err != nil || len(notes) != 0 {
		t.Fatal(err, notes)
	}
	var tokens Tokens
	if _, ok := tokens.Find(text); ok {
		t.Error("found among none")
	}
	tokens.Replace(all...)
	if anna, ok := tokens.Find(text); !ok || anna.Name != "anna" || !anna.May(ScopeOperate) || !anna.May(ScopeRead) {
		t.Errorf("%+v, %v", anna, ok)
	}
	if grafana, ok := tokens.Find("hunter2-hunter2-plain"); !ok || grafana.Name != "grafana" || grafana.May(ScopeOperate) {
		t.Errorf("%+v, %v", grafana, ok)
	}
	for _, wrong := range []string{"", hash, "hunter2-hunter2-plai", text + "x"} {
		if found, ok := tokens.Find(wrong); ok {
			t.Errorf("%q is %s's", wrong, found.Name)
		}
	}
}

func TestReadTokensRefuses(t *testing.T) {
	t.Parallel()
	const good = "token: hunter2-hunter2-plain"
	for _, test := range []struct{ name, text, want string }{
		{"no list", "{name: a, " + good + ", scopes: [read]}", ":1:1: this must be a list"},
		{"no name", "- {" + good + ", scopes: [read]}", ":1:3: name is missing"},
		{"no token", "- {name: a, scopes: [read]}", ":1:3: token is missing"},
		{"no scopes", "- {name: a, " + good + "}", ":1:3: scopes is missing"},
		{"empty scopes", "- {name: a, " + good + ", scopes: []}", ":1:51: the list is empty"},
		{"unknown key", "- {name: a, " + good + ", scope: [read]}", ":1:43: unknown key (did you mean scopes?)"},
		{"unknown scope", "- {name: a, " + good + ", scopes: [reed]}", ":1:52: unknown scope (did you mean read?)"},
		{"scope twice", "- {name: a, " + good + ", scopes: [read, read]}", ":1:58: this scope is there twice"},
		{"operate alone", "- {name: a, " + good + ", scopes: [operate]}", ":1:51: operate needs read"},
		{"scopes no list", "- {name: a, " + good + ", scopes: read}", ":1:51: this must be a list"},
		{"short", "- {name: a, token: hunter2, scopes: [read]}", ":1:20: a token has 16 to 4096 bytes"},
		{"space", "- {name: a, token: hunter2 hunter2 plain, scopes: [read]}", ":1:20: a token has printable ASCII"},
		{"no hash", "- {name: a, token: 'sha256:hunter2', scopes: [read]}", ":1:20: a hash is sha256:"},
		{"long hash", "- {name: a, token: 'sha256:" + strings.Repeat("a", 66) + "', scopes: [read]}", ":1:20: a hash is sha256:"},
		{"same name", "- {name: a, " + good + ", scopes: [read]}\n- {name: a, " + good + "2, scopes: [read]}", ":2:10: this name is there twice: first in line 1"},
		{"same token", "- {name: a, " + good + ", scopes: [read]}\n- {name: b, token: '" + HashToken("hunter2-hunter2-plain") + "', scopes: [read]}", ":2:20: this token is there twice: first in line 1"},
	} {
		path := file(t, test.text)
		_, _, err := ReadTokens(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %s and no token", test.name, err, test.want)
		}
	}
}
