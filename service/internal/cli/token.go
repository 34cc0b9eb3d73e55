package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/waybill-go/waybill/service/internal/credentials"
)

type tokenCmd struct {
	output

	Stdin bool `help:"Hash the token on standard input, and make none."`
}

func (tokenCmd) Help() string {
	return `Prints a token, for its owner, and its hash, for the gateway's ADMIN_TOKENS_FILE. Neither is kept anywhere.

Examples:

    gateway token
    gateway token --stdin --json < token.txt`
}

// Run prints a token and its hash.
func (c *tokenCmd) Run(p *Program) error {
	v := struct {
		Token string `json:"token,omitempty"`
		Hash  string `json:"hash"`
	}{}
	if c.Stdin {
		raw, err := io.ReadAll(io.LimitReader(p.Stdin, credentials.MaxTokenBytes+2))
		if err != nil {
			return err
		}
		text := strings.TrimRight(string(raw), "\r\n")
		if len(text) < credentials.MinTokenBytes || len(text) > credentials.MaxTokenBytes || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return usage("a token has %d to %d bytes, printable ASCII characters without a space", credentials.MinTokenBytes, credentials.MaxTokenBytes)
		}
		v.Hash = credentials.HashToken(text)
	} else {
		v.Token, v.Hash = credentials.MakeToken()
	}
	if c.JSON {
		return printJSON(p.Stdout, v)
	}
	if v.Token != "" {
		_, _ = fmt.Fprintf(p.Stdout, "token  %s\n", v.Token)
	}
	_, err := fmt.Fprintf(p.Stdout, "hash   %s\n", v.Hash)
	return err
}
