// Package deploy_test holds the files that the gateway is deployed with to what the gateway is.
package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/service/internal/cli"
)

// defaults are the gateway's settings.
func defaults(t *testing.T) map[string]string {
	t.Helper()
	var out, errs strings.Builder
	none := func(string) (string, bool) { return "", false }
	if code := cli.Run(t.Context(), cli.Program{Args: []string{"gateway", "config", "--json"}, LookupEnv: none, Stdout: &out, Stderr: &errs}); code != 0 {
		t.Fatal(errs.String())
	}
	var all struct {
		Settings []struct{ Setting, Value string }
	}
	if err := json.Unmarshal([]byte(out.String()), &all); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{"WAYBILL_CONFIG": ""}
	for _, s := range all.Settings {
		settings[s.Setting] = s.Value
	}
	return settings
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unit is a unit of systemd: the values of each directive, by section and name.
func unit(t *testing.T, path string) map[string][]string {
	t.Helper()
	values := map[string][]string{}
	section := ""
	for line := range strings.Lines(read(t, path)) {
		line = strings.TrimSpace(line)
		name, value, assigns := strings.Cut(line, "=")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = line
		case section == "" || !assigns:
			t.Errorf("%s: %q", path, line)
		default:
			values[section+name] = append(values[section+name], value)
		}
	}
	return values
}

func settingsIn(t *testing.T, where string, names []string) {
	t.Helper()
	known := defaults(t)
	for _, name := range names {
		if _, is := known[name]; !is {
			t.Errorf("%s: %s is no setting of the gateway", where, name)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	shutdown, err := time.ParseDuration(defaults(t)["SHUTDOWN_TIMEOUT"])
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"[Unit]Description", "[Service]ExecStart", "[Service]ExecReload", "[Service]Environment"}
	var shared map[string][]string
	for part, reloads := range map[string]bool{"api": true, "worker": false, "dispatch": false} {
		path := "systemd/gateway-" + part + "@.service"
		u := unit(t, path)
		if got := u["[Service]ExecStart"]; !slices.Equal(got, []string{"/usr/local/bin/gateway " + part}) {
			t.Errorf("%s starts %q", path, got)
		}
		var names []string
		for _, e := range u["[Service]Environment"] {
			name, _, _ := strings.Cut(e, "=")
			names = append(names, name)
		}
		settingsIn(t, path, names)
		// Without a file of secrets, SIGHUP ends a process.
		if got := slices.Equal(u["[Service]ExecReload"], []string{"/bin/kill -HUP $MAINPID"}); got != reloads || slices.Contains(names, "HMAC_SECRETS_FILE") != reloads {
			t.Errorf("%s: reloads: %v, with %v", path, u["[Service]ExecReload"], names)
		}
		stop, err := time.ParseDuration(u["[Service]TimeoutStopSec"][0])
		if err != nil || stop <= shutdown {
			t.Errorf("%s: TimeoutStopSec is %v, %v; it has to drain for %v", path, stop, err, shutdown)
		}
		for name, value := range map[string]string{
			"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes", "PrivateDevices": "yes", "CapabilityBoundingSet": "",
			"MemoryDenyWriteExecute": "yes", "User": "waybill", "UMask": "0077", "Restart": "always", "EnvironmentFile": "/etc/waybill/gateway.env",
		} {
			if got := u["[Service]"+name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s: %s is %q, want %q", path, name, got, value)
			}
		}
		for _, name := range own {
			delete(u, name)
		}
		if shared == nil {
			shared = u
		}
		if !maps.EqualFunc(u, shared, slices.Equal) {
			t.Errorf("%s: %v, which other units do not have: %v", path, u, shared)
		}
	}
	names := func(text, pattern string) (all []string) {
		for _, name := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, name[1])
		}
		return all
	}
	settingsIn(t, "gateway.env", names(read(t, "systemd/gateway.env"), `(?m)^([A-Z_]+)=`))
	settingsIn(t, "gateway.yaml", names(read(t, "systemd/gateway.yaml"), `(?m)^([A-Z_]+):`))
}

func TestCompose(t *testing.T) {
	t.Parallel()
	var c struct {
		Services map[string]struct {
			Image           string
			Command         []string
			Environment     map[string]any
			ReadOnly        bool     `yaml:"read_only"`
			CapDrop         []string `yaml:"cap_drop"`
			StopGracePeriod string   `yaml:"stop_grace_period"`
			Healthcheck     *struct{ Test []string }
			Build           *struct{ Context, Dockerfile string }
			DependsOn       map[string]any `yaml:"depends_on"`
			Networks        []string
			Profiles        []string
		}
		Networks, Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(read(t, "compose/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	for name, s := range c.Services {
		for _, network := range s.Networks {
			if _, is := c.Networks[network]; !is {
				t.Errorf("%s: there is no network %s", name, network)
			}
		}
		if s.Build == nil {
			if s.Healthcheck == nil || !regexp.MustCompile(`^[a-z]+:[0-9]`).MatchString(s.Image) {
				t.Errorf("%s: it needs a version and a health check: %+v", name, s)
			}
			continue
		}
		settingsIn(t, name, slices.Collect(maps.Keys(s.Environment)))
		if !slices.Equal(s.Command, []string{name}) || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.StopGracePeriod != "40s" {
			t.Errorf("%s: %+v", name, s)
		}
		if _, err := os.Stat(filepath.Join("compose", s.Build.Context, s.Build.Dockerfile)); err != nil {
			t.Error(err)
		}
		for server := range s.DependsOn {
			if _, is := c.Services[server]; !is {
				t.Errorf("%s: there is no service %s", name, server)
			}
		}
	}
	if command := strings.Join(c.Services["redis"].Command, " "); !strings.Contains(command, "--appendonly yes --appendfsync always") || !strings.Contains(command, "--maxmemory-policy noeviction") {
		t.Errorf("Redis would lose events: %s", command)
	}
	for _, database := range []string{"postgres", "mongodb"} {
		if got := c.Services[database].Profiles; !slices.Equal(got, []string{database}) {
			t.Errorf("%s: it is of the profiles %v", database, got)
		}
	}
	if len(c.Services) != 6 {
		t.Errorf("%d services", len(c.Services))
	}
}
