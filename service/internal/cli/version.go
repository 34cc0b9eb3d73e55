package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{ output }

func (versionCmd) Help() string {
	return `Examples:

    ${program} version
    ${program} version --json`
}

// Run prints what the binary was built from.
func (c *versionCmd) Run(p *Program) error {
	v := struct {
		Version  string `json:"version"`
		Revision string `json:"revision,omitempty"`
		Modified bool   `json:"modified,omitempty"`
		Go       string `json:"go"`
	}{Version: "unknown", Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = info.Main.Version
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if c.JSON {
		return printJSON(p.Stdout, v)
	}
	line := fmt.Sprintf("%s %s, %s", p.tool.name, v.Version, v.Go)
	if v.Revision != "" {
		line += ", revision " + v.Revision
	}
	if v.Modified {
		line += ", modified"
	}
	_, err := fmt.Fprintln(p.Stdout, line)
	return err
}
