package cli

import (
	"context"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type dispatchCmd struct {
	output
	storeSetting
	healthSettings
	brokerSettings
	processSettings
}

func (dispatchCmd) Help() string {
	return `Takes events from the database to the broker, and removes from the database what has expired. Several share the work.

Examples:

    export STORE_URL=postgres://waybill@localhost/waybill BROKER_URL=redis://localhost
    gateway dispatch
    gateway dispatch --http-addr :8081    # /healthz and /readyz`
}

// Run runs a dispatcher.
func (c *dispatchCmd) Run(ctx context.Context, p *Program) error {
	return start(ctx, p, gateway.Dispatch, c.told(p, "The dispatcher runs"), c.storeSetting, c.healthSettings, c.brokerSettings, c.processSettings)
}
