package cli

import (
	"context"

	"github.com/waybill-go/waybill/service/internal/gateway"
)

type apiCmd struct {
	output
	storeSetting
	intakeSettings
	brokerSetting
	processSettings
}

func (apiCmd) Help() string {
	return `Takes events in and shows what became of them. It needs no broker: gateway dispatch, in another process, takes the events on from the database. With --intake direct
it publishes them itself.

Examples:

    export STORE_URL=postgres://waybill@localhost/waybill HMAC_SECRET=… ADMIN_TOKEN=…
    HTTP_ADDR=:8080 gateway api
    HTTP_ADDR=:8080 gateway api --intake direct --broker-url redis://localhost`
}

// Run runs the API.
func (c *apiCmd) Run(ctx context.Context, p *Program) error {
	return start(ctx, p, gateway.API, c.told(p, "The API serves"), c.storeSetting, c.intakeSettings, c.brokerSetting, c.processSettings)
}
