package cli

import "github.com/waybill-go/waybill/service/internal/backend"

// theWaybill is the command line of waybill.
func theWaybill() *tool {
	return &tool{
		name: "waybill", description: "Waybill's commands for operators, on the store of any application.", storeFlag: "--store", grammar: &waybillGrammar{},
		exampleEvent: "0198a000-…", exampleConsumer: "billing", exampleMatch: "payload.amount > 100",
		open: backend.OpenLibrary, openSchema: backend.OpenLibrarySchema, schemaSQL: backend.LibrarySQL,
	}
}

type waybillGrammar struct {
	Store []string `sep:"none" placeholder:"URL" setting:"STORE_URL" help:"The application's database: sqlite:FILE, postgres://… or mongodb://…; dlq plan and dlq apply take several."`

	DLQ     dlqCmd     `cmd:"" name:"dlq" help:"Look after dead letters: list, group, plan, replay, close."`
	Outbox  outboxCmd  `cmd:"" help:"Look at the outbox, or send again what a broker has lost."`
	Routes  routesCmd  `cmd:"" help:"Check, explain, test and compare routing files."`
	Migrate migrateCmd `cmd:"" help:"Bring the database's schema up to date, or show it."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

func (waybillGrammar) Help() string {
	return `Works on the database of an application, also while it runs. Others can read flags: prefer STORE_URL for an address with a password.

Examples:

    waybill --store sqlite:app.db migrate up
    waybill --store sqlite:app.db dlq list
    STORE_URL=postgres://app@db/app waybill dlq groups
    waybill routes lint routes.yaml`
}

// AfterApply tells the commands.
func (g *waybillGrammar) AfterApply(p *Program) error {
	p.stores = g.Store
	return nil
}
