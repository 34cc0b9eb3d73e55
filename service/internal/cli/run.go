package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type runCmd struct {
	output
	storeSetting
	intakeSettings
	brokerSettings
	workerSettings
	processSettings
}

func (runCmd) Help() string {
	return `Serves couriers and operators until it is told to stop, and prints where, and what to try.

Examples:

    gateway run
    HMAC_SECRET=$(openssl rand -hex 32) ADMIN_TOKEN=$(openssl rand -hex 32) \
        STORE_URL=postgres://waybill@localhost/waybill BROKER_URL=redis://localhost HTTP_ADDR=:8080 gateway run`
}

// Run runs the gateway.
func (c *runCmd) Run(ctx context.Context, p *Program) error {
	return start(ctx, p, gateway.All, func(s gateway.Started) { c.announce(p, s) },
		c.storeSetting, c.intakeSettings, c.brokerSettings, c.workerSettings, c.processSettings)
}

// announce tells where the gateway serves and, on a store of its own, how to try
// it. Of secrets it prints those that nobody else knows. Who has closed standard
// output does not want to know.
func (c *runCmd) announce(p *Program, s gateway.Started) {
	if c.JSON {
		_ = printJSON(p.Stdout, struct {
			URL        string `json:"url"`
			HMACSecret string `json:"hmac_secret,omitempty"`
			AdminToken string `json:"admin_token,omitempty"`
		}{s.URL, s.HMACSecret, s.AdminToken})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The gateway serves at %s\n", s.URL)
	if s.Embedded {
		c.tour(&b, p, s)
	}
	_, _ = io.WriteString(p.Stdout, b.String())
}

func (c *runCmd) tour(b *strings.Builder, p *Program, s gateway.Started) {
	var exports, made, given []string
	program := name
	if len(p.Args) > 0 {
		if dir := filepath.Dir(p.Args[0]); filepath.Base(p.Args[0]) != name {
			program = quoted(p.Args[0])
		} else if strings.ContainsRune(p.Args[0], filepath.Separator) {
			exports = append(exports, searchPath(dir))
		}
	}
	for _, secret := range []struct{ name, made string }{{"HMAC_SECRET", s.HMACSecret}, {"ADMIN_TOKEN", s.AdminToken}} {
		if secret.name == "HMAC_SECRET" && c.HMACSecretsFile != "" {
			exports = append(exports, "HMAC_SECRET=…")
			continue
		}
		if secret.name == "ADMIN_TOKEN" && c.AdminToken == "" && c.AdminTokensFile != "" {
			continue // whose it is, knows it
		}
		if secret.made == "" {
			given = append(given, secret.name)
			continue
		}
		made = append(made, secret.name)
		exports = append(exports, secret.name+"="+secret.made)
	}
	if c.StoreURL != defaultStoreURL {
		exports = append(exports, "STORE_URL="+quoted(c.StoreURL))
	}
	fmt.Fprint(b, "\nTo try it, in a second terminal, in this folder:\n")
	if len(exports) > 0 {
		fmt.Fprintf(b, "  export %s\n", strings.Join(exports, " "))
	}
	fmt.Fprintf(b, `  %s send examples/couriers/samples.ndjson --rate 20 --url %s
  curl -H "Authorization: Bearer $ADMIN_TOKEN" %s/v1/shipments/shp_456
  %s dlq list
`, program, s.URL, s.URL, program)
	b.WriteByte('\n')
	if c.HMACSecretsFile != "" {
		fmt.Fprintf(b, "HMAC_SECRET: a secret of %s that may sign for the events' sources.\n", quoted(c.HMACSecretsFile))
	}
	if len(given) > 0 {
		fmt.Fprintf(b, "%s: as given to this run; export the same there.\n", strings.Join(given, " and "))
	}
	if len(made) > 0 {
		fmt.Fprintf(b, "%s: made for this run; without a setting, the next run makes another.\n", strings.Join(made, " and "))
	}
}

// searchPath puts the program's folder first, for a shell in this folder.
func searchPath(dir string) string {
	if !filepath.IsAbs(dir) && quoted(dir) == dir {
		return fmt.Sprintf(`PATH="$PWD/%s:$PATH"`, dir)
	}
	if !filepath.IsAbs(dir) {
		return `PATH="$PWD"/` + quoted(dir) + `:"$PATH"`
	}
	return `PATH=` + quoted(dir) + `:"$PATH"`
}

// quoted is a word for a shell.
func quoted(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
