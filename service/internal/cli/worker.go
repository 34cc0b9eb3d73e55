package cli

import (
	"context"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type workerCmd struct {
	output
	storeSetting
	healthSettings
	brokerSettings
	workerSettings
	processSettings
}

func (workerCmd) Help() string {
	return `Handles events from the broker, and again those whose retry is due. Several share the work.

Examples:

    export STORE_URL=postgres://waybill@localhost/waybill BROKER_URL=redis://localhost
    gateway worker
    gateway worker --worker-concurrency 16 --http-addr :8082    # /healthz and /readyz`
}

// Run runs a worker.
func (c *workerCmd) Run(ctx context.Context, p *Program) error {
	return start(ctx, p, gateway.Work, c.told(p, "The worker runs"), c.storeSetting, c.healthSettings, c.brokerSettings, c.workerSettings, c.processSettings)
}
