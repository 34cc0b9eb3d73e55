package cli

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/waybill-go/waybill/service/internal/strictyaml"
)

// configSetting names the configuration file.
const configSetting = "WAYBILL_CONFIG"

// Where values come from, if not from a file.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromDefault     = "default"
)

// secretSettings are not to be shown.
var secretSettings = map[string]bool{"HMAC_SECRET": true, "ADMIN_TOKEN": true}

// notInFile are variables that are no settings of the gateway.
var notInFile = []string{configSetting, "USER"}

// origins fills in flags that are not on the command line, from the environment or else from the configuration file,
// and knows afterwards where each came from. An empty value is as good as none.
type origins struct {
	lookup func(string) (string, bool)
	of     map[string]string // by setting

	read    bool  // the file, if there is one
	failed  error // why it is not: parser's errors name a flag, which is not to blame
	file    map[string]strictyaml.Value
	exposed string // what is to be said of a file that others may read
}

func newOrigins(lookup func(string) (string, bool)) *origins {
	return &origins{lookup: lookup, of: map[string]string{}}
}

// Validate implements [kong.Resolver].
func (*origins) Validate(*kong.Application) error { return nil }

// Resolve implements [kong.Resolver].
func (o *origins) Resolve(command *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if !o.read {
		o.read = true
		o.failed = o.open(command)
	}
	name := flag.Tag.Get(settingTag)
	if name == "" {
		return nil, nil
	}
	value, _ := o.lookup(name)
	origin, place := fromEnvironment, name
	if v, inFile := o.file[name]; inFile && value == "" {
		value, _ = v.Scalar() // it is one: open has seen to it
		origin, place = v.Place(), name+" in "+v.Place()
	}
	if value == "" {
		return nil, nil
	}
	// Decoded here only to say in the error where it is from.
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: value})
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, reflect.New(flag.Target.Type()).Elem()); err != nil {
		return nil, fmt.Errorf("from %s: %w", place, err)
	}
	o.of[name] = origin
	return value, nil
}

// open reads the configuration file, if the command line or the environment names one.
func (o *origins) open(command *kong.Context) error {
	var known []string
	path := ""
	_ = kong.Visit(command.Model, func(v kong.Visitable, next kong.Next) error { // returns what the function does
		if flag, is := v.(*kong.Flag); is && flag.Tag.Get(settingTag) != "" {
			known = append(known, flag.Tag.Get(settingTag))
		}
		return next(nil)
	})
	if !slices.Contains(known, configSetting) {
		return nil // waybill has none
	}
	from := configSetting
	path, _ = o.lookup(configSetting)
	for _, p := range command.Path {
		if p.Flag != nil && p.Flag.Tag.Get(settingTag) == configSetting {
			path, _ = command.FlagValue(p.Flag).(string)
			from = "--" + p.Flag.Name
		}
	}
	if path == "" {
		return nil
	}
	slices.Sort(known)
	known = slices.DeleteFunc(slices.Compact(known), func(name string) bool { return slices.Contains(notInFile, name) })
	f, err := strictyaml.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	o.file = map[string]strictyaml.Value{}
	for _, e := range f.Root().Entries() {
		if !slices.Contains(known, e.Name) {
			e.Key.Fault("unknown setting%s; gateway config lists them", strictyaml.Meant(e.Name, known))
			continue
		}
		text, ok := e.Value.Scalar()
		if ok {
			o.file[e.Name] = e.Value
		}
		if f.Shared != 0 && shown(e.Name, text) != text {
			o.exposed = fmt.Sprintf("%s has secrets, and others than its owner may use it (mode & 077 is %03o): chmod 600", path, f.Shared)
		}
	}
	return f.Err()
}

// flags notes what the command line has.
func (o *origins) flags(command *kong.Context) {
	for _, path := range command.Path {
		if path.Flag != nil && !path.Resolved && path.Flag.Tag.Get(settingTag) != "" {
			o.of[path.Flag.Tag.Get(settingTag)] = fromFlag
		}
	}
}

var settingName = regexp.MustCompile(`\b[A-Z]+(_[A-Z]+)+\b`)

// explain adds to each of some errors where the settings that it names have their values from, unless they are
// defaults.
func (o *origins) explain(err error) error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several {
		return o.explainOne(err)
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, o.explainOne(one))
	}
	return errors.Join(all...)
}

func (o *origins) explainOne(err error) error {
	var from, seen []string
	for _, name := range settingName.FindAllString(err.Error(), -1) {
		if origin := o.of[name]; origin != "" && !slices.Contains(seen, name) {
			seen = append(seen, name)
			if origin == fromFlag || origin == fromEnvironment {
				origin = "the " + origin
			}
			from = append(from, name+" is from "+origin)
		}
	}
	if len(from) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(from, ", "))
}
