package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/credentials"
)

// ErrSecretFile is the error of a file of secrets that cannot be used.
var ErrSecretFile = errors.New("the file cannot be used")

// secretFile is a file that can change while the gateway runs.
type secretFile struct {
	setting, path string
	// read puts what the file has in place, or changes nothing. It returns how many entries there are,
	// and what is worth knowing of them.
	read func() (entries int, notes []string, err error)
}

// keys returns the keyring of the settings.
func (g *gateway) keys() (*courier.Keyring, error) {
	if g.cfg.HMACSecretsFile == "" {
		k, err := courier.NewKeyring(courier.Secret{Value: []byte(g.cfg.HMACSecret)})
		if err != nil {
			return nil, fmt.Errorf("HMAC_SECRET: %w", err)
		}
		g.atLeast(credentials.MinSecretBytes, "HMAC_SECRET", g.cfg.HMACSecret)
		return k, nil
	}
	k := &courier.Keyring{}
	return k, g.follow(secretFile{"HMAC_SECRETS_FILE", g.cfg.HMACSecretsFile, func() (int, []string, error) {
		s, err := credentials.ReadSecrets(g.cfg.HMACSecretsFile, g.cfg.LookupEnv, time.Now())
		if err != nil {
			return 0, nil, err
		}
		return len(s.All), s.Notes, k.Replace(s.All...)
	}})
}

// adminToken is who acts with ADMIN_TOKEN.
const adminToken = "ADMIN_TOKEN"

// tokens returns the bearer tokens of the settings.
func (g *gateway) tokens() (*credentials.Tokens, error) {
	t := &credentials.Tokens{}
	var fixed []credentials.Token
	if g.cfg.AdminToken != "" {
		g.atLeast(credentials.MinTokenBytes, adminToken, g.cfg.AdminToken)
		fixed = append(fixed, credentials.NewToken(adminToken, g.cfg.AdminToken, credentials.ScopeRead, credentials.ScopeOperate))
	}
	t.Replace(fixed...)
	if g.cfg.AdminTokensFile == "" {
		return t, nil
	}
	return t, g.follow(secretFile{"ADMIN_TOKENS_FILE", g.cfg.AdminTokensFile, func() (int, []string, error) {
		all, notes, err := credentials.ReadTokens(g.cfg.AdminTokensFile)
		if err == nil {
			t.Replace(append(all, fixed...)...)
		}
		return len(all), notes, err
	}})
}

// atLeast warns of a secret that can be guessed. In a file it would be refused; these settings take any.
func (g *gateway) atLeast(n int, setting, secret string) {
	if len(secret) < n {
		g.cfg.Logger.Warn("gateway: this secret is so short that it can be guessed; make one with: openssl rand -hex 32", "setting", setting, "bytes", len(secret), "at_least", n)
	}
}

// follow reads a file for the first time, and remembers it.
func (g *gateway) follow(f secretFile) error {
	g.files = append(g.files, f)
	n, notes, err := f.read()
	if err != nil {
		return fmt.Errorf("%s: %w:\n%w", f.setting, ErrSecretFile, err)
	}
	g.tell(f, n, notes)
	return nil
}

func (g *gateway) tell(f secretFile, entries int, notes []string) {
	g.cfg.Logger.Info("gateway: file of secrets read", "setting", f.setting, "file", f.path, "entries", entries)
	for _, note := range notes {
		g.cfg.Logger.Warn("gateway: file of secrets", "setting", f.setting, "note", note)
	}
}

// reread reads the files again whenever it is told to. One that is faulty changes nothing.
func (g *gateway) reread(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.cfg.Hangup:
		}
		for _, f := range g.files {
			n, notes, err := f.read()
			if err != nil {
				g.cfg.Logger.Error("gateway: file of secrets refused; what was read before stays", "setting", f.setting, "error", err)
				continue
			}
			g.tell(f, n, notes)
		}
	}
}
