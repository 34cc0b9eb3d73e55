package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/waybill-go/waybill/service/internal/cli"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

// A faulty file is the caller's fault, and told with its places.
func TestFaultySecretsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(path, []byte("- {source: courier-x, secret: hunter2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEnvironment(t)
	e["HMAC_SECRETS_FILE"], e["ADMIN_TOKEN"] = path, "the admin token"
	if r := e.run(t, "api"); r.code != 2 || !strings.Contains(r.stderr, "HMAC_SECRETS_FILE: the file cannot be used:\n"+path+":1:31: a secret has 16") || strings.Contains(r.stderr, "hunter2") {
		t.Errorf("%+v", r)
	}
	e["HMAC_SECRETS_FILE"] = path + "x"
	if r := e.run(t, "run"); r.code != 2 || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("no file: %+v", r)
	}
}

// gateway send names its secret, and a rotation by SIGHUP reaches the gateway.
func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secrets.yaml")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("- {key: first, secret: the first of the secrets}\n")
	e := newEnvironment(t)
	e["HMAC_SECRETS_FILE"] = path
	signals := make(chan os.Signal)
	g := e.gatewayWith(t, cli.Program{Hangup: func() (<-chan os.Signal, func()) { return signals, func() {} }}, "--json")
	e["GATEWAY_URL"] = decode[struct{ URL string }](t, g.stdout.String()).URL
	e["HMAC_SECRET"] = "the first of the secrets"
	send := func(keyID string) int { return e.run(t, "send", samples, "--key-id", keyID).code }
	if send("first") != 0 || send("second") != 1 {
		t.Error("the key id is not sent")
	}
	put("- {key: second, secret: the second of the secrets}\n")
	signals <- syscall.SIGHUP
	e["HMAC_SECRET"] = "the second of the secrets"
	eventually(t, func() int { return send("second") }, func(code int) bool { return code == 0 })
}

func TestToken(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	made := object[struct{ Token, Hash string }](t, e, "token")
	if len(made.Token) < 40 || made.Hash != credentials.HashToken(made.Token) {
		t.Errorf("made %+v", made)
	}
	if r := e.start(t.Context(), cli.Program{Args: []string{"token", "--stdin"}, Stdin: strings.NewReader(made.Token + "\n")}); r.stdout != "hash   "+made.Hash+"\n" {
		t.Errorf("hashed: %+v", r)
	}
	if r := e.start(t.Context(), cli.Program{Args: []string{"token", "--stdin"}, Stdin: strings.NewReader("hunter2\n")}); r.code != 2 || strings.Contains(r.stderr, "hunter2") {
		t.Errorf("a short token: %+v", r)
	}
}
