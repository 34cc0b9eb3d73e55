package cli

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// settingTag names the environment variable of a flag. It is not kong's own "env",
// which reads the process's environment whatever it is given.
const settingTag = "setting"

// environment fills in flags that are not on the command line. An empty variable
// is as good as none.
func environment(lookup func(string) (string, bool)) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		name := flag.Tag.Get(settingTag)
		if name == "" {
			return nil, nil
		}
		value, ok := lookup(name)
		if !ok || value == "" {
			return nil, nil
		}
		// Decoded here only to name the variable in the error.
		scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: value})
		if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, reflect.New(flag.Target.Type()).Elem()); err != nil {
			return nil, fmt.Errorf("from %s: %w", name, err)
		}
		return value, nil
	})
}

// helpWithSetting adds the environment variable to a flag's help.
func helpWithSetting(v *kong.Value) string {
	if name := v.Tag.Get(settingTag); name != "" {
		return strings.TrimSuffix(v.Help, ".") + " ($" + name + ")."
	}
	return v.Help
}

// output is how a command prints.
type output struct {
	JSON bool `help:"Print JSON, for scripts."`
}

const defaultStoreURL = "sqlite:waybill.db"

// storeSetting is the database of a command.
type storeSetting struct {
	StoreURL string `default:"${default_store}" setting:"STORE_URL" help:"The gateway's database: sqlite:FILE or postgres://…"`
}
