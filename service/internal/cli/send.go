package cli

import (
	"context"
	"strings"

	"github.com/waybill-go/waybill/service/internal/send"
)

type sendCmd struct {
	output

	Inputs      []string `arg:"" name:"input" help:"Files with a JSON object, a list or NDJSON; folders of *.json and *.ndjson (subfolders are not searched); or - for standard input."`
	URL         string   `name:"url" default:"http://127.0.0.1:8080" setting:"GATEWAY_URL" help:"The gateway's address."`
	HMACSecret  string   `name:"hmac-secret" placeholder:"SECRET" setting:"HMAC_SECRET" help:"Sign with this. Others can read flags: prefer the variable."`
	KeyID       string   `name:"key-id" placeholder:"ID" setting:"HMAC_KEY_ID" help:"The secret's key id, where the gateway has several secrets."`
	Count       uint     `placeholder:"N" help:"Send this many events, the input over and over with ids of their own. Default: the input once."`
	Rate        float64  `placeholder:"N" help:"Begin at most this many events per second."`
	Concurrency uint     `placeholder:"N" help:"Requests at once. Default: 1, which keeps the order, or 16 if --count exceeds the input."`
}

func (sendCmd) Help() string {
	return `Prints the answer to each event, with its trace id, and a summary. Sending again is safe: the gateway knows events by their idempotency key.

Examples:

    HMAC_SECRET=… gateway send examples/couriers/samples.ndjson --rate 20
    HMAC_SECRET=… gateway send samples.ndjson --count 10000 --rate 500
    HMAC_SECRET=… gateway send samples.ndjson --key-id courier-x-2026-03
    cat event.json | HMAC_SECRET=… gateway send - --url https://gateway.example.com`
}

// Run sends.
func (c *sendCmd) Run(ctx context.Context, p *Program) error {
	switch {
	case c.HMACSecret == "":
		return usage("no secret to sign with: set HMAC_SECRET to the gateway's")
	case !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://"):
		return usage("the gateway's address %q must look like http://127.0.0.1:8080", c.URL)
	case !(c.Rate >= 0): // also when it is not a number
		return usage("--rate must not be negative")
	case c.Count > maxSendCount || c.Concurrency > maxSendConcurrency:
		return usage("--count may be %d at most, --concurrency %d", maxSendCount, maxSendConcurrency)
	}
	_, err := send.Run(ctx, send.Config{
		URL: c.URL, Secret: c.HMACSecret, KeyID: c.KeyID, Inputs: c.Inputs, Stdin: p.Stdin,
		Count: int(c.Count), Rate: c.Rate, Concurrency: int(c.Concurrency),
		Out: p.Stdout, Notices: p.Stderr, Progress: send.IsTerminal(p.Stdout), JSON: c.JSON,
	})
	return err
}

const (
	maxSendCount       = 10_000_000
	maxSendConcurrency = 1024
)
