package cli

import (
	"context"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type apiCmd struct {
	output
	storeSetting
	intakeSettings
	processSettings
}

func (apiCmd) Help() string {
	return `Takes events in and shows what became of them. It needs no broker: gateway dispatch, in another process, takes the events on from the database.

Examples:

    export STORE_URL=postgres://waybill@localhost/waybill HMAC_SECRET=… ADMIN_TOKEN=…
    HTTP_ADDR=:8080 gateway api`
}

// Run runs the API.
func (c *apiCmd) Run(ctx context.Context, p *Program) error {
	return start(ctx, p, gateway.API, c.told(p, "The API serves"), c.storeSetting, c.intakeSettings, c.processSettings)
}
