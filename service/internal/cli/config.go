package cli

import (
	"cmp"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/waybill-go/waybill/service/internal/store"
)

type configCmd struct {
	output
	storeSetting
	intakeSettings
	brokerSettings
	workerSettings
	processSettings
}

func (configCmd) Help() string {
	return `Shows the settings of gateway run, which are those of its parts, without secrets. It does not check them.

Examples:

    gateway config
    gateway config --config /etc/waybill/gateway.yaml --json`
}

// effective is a setting with its value. Secrets are masked.
type effective struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Origin  string `json:"origin"`
}

// Run prints the settings.
func (c *configCmd) Run(command *kong.Context, p *Program) error {
	var all []effective
	for _, flag := range command.Selected().Flags {
		name := flag.Tag.Get(settingTag)
		if name == "" {
			continue
		}
		all = append(all, effective{name, shown(name, fmt.Sprint(flag.Target.Interface())), cmp.Or(p.origins.of[name], fromDefault)})
	}
	if c.JSON {
		return printJSON(p.Stdout, struct {
			Settings []effective `json:"settings"`
		}{all})
	}
	rows := [][]string{{"SETTING", "VALUE", "FROM"}}
	for _, s := range all {
		rows = append(rows, []string{s.Setting, s.Value, s.Origin})
	}
	return printTable(p.Stdout, rows)
}

// shown is a value without what is secret in it.
func shown(name, value string) string {
	switch {
	case value == "":
		return ""
	case secretSettings[name]:
		return "********"
	case name == "STORE_URL", name == "BROKER_URL":
		return store.Masked(value)
	}
	return value
}
