package credentials

import (
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/strictyaml"
)

// Bounds of what is in a file, in bytes.
const (
	MinSecretBytes = 16 // of a secret that a courier signs with: what is shorter can be guessed
	MaxSecretBytes = 4096
	MaxNameBytes   = 255 // of key ids and names
)

// Secrets are those of a file.
type Secrets struct {
	// All are the secrets, in the file's order; those that have expired, too.
	All []courier.Secret
	// Notes are what whoever runs the gateway should know, though it is no fault.
	Notes []string
}

// ReadSecrets reads the file of couriers' secrets at a path: a YAML list of mappings with the keys
//
//   - key: the secret's id, which X-Signature-Key names; optional, unique,
//   - source: the only source whose events it may sign; without it, every source's,
//   - secret, or secret_env: the secret, of [MinSecretBytes] to [MaxSecretBytes] bytes, or the environment
//     variable that has it; no two are the same,
//   - not_before, not_after: times between which it holds, RFC 3339, the latter excluded; optional.
//
// Secrets without a key are all tried, so a file in which more than [courier.MaxTried] have not expired needs a
// key for each. The error has each fault with its line and column.
func ReadSecrets(path string, lookupEnv func(string) (string, bool), now time.Time) (*Secrets, error) {
	f, err := strictyaml.Open(path)
	if err != nil {
		return nil, err
	}
	r := secretsReader{lookupEnv: lookupEnv, now: now, keys: map[string]int{}, values: map[string]int{}}
	for _, v := range f.Root().List(courier.MaxSecrets) {
		r.read(v)
	}
	if r.current > courier.MaxTried {
		for _, v := range r.keyless {
			v.Fault("key is missing: of more than %d secrets each needs one", courier.MaxTried)
		}
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	if f.Shared != 0 {
		r.notes = append(r.notes, sharedNote(path, f.Shared))
	}
	if r.valid == 0 {
		r.notes = append(r.notes, path+": no secret is valid now: nothing is accepted")
	}
	return &Secrets{r.all, r.notes}, nil
}

func sharedNote(path string, bits fs.FileMode) string {
	return fmt.Sprintf("%s: others than its owner may use it (mode & 077 is %03o): chmod 600", path, bits)
}

type secretsReader struct {
	lookupEnv func(string) (string, bool)
	now       time.Time

	all            []courier.Secret
	notes          []string
	keys, values   map[string]int // where they are, by line
	keyless        []strictyaml.Value
	current, valid int // secrets that have not expired, and those of them that hold now
}

func (r *secretsReader) read(v strictyaml.Value) {
	fields, ok := v.Fields("key", "source", "secret", "secret_env", "not_before", "not_after")
	if !ok {
		return
	}
	var s courier.Secret
	if key, given := fields["key"]; given {
		s.KeyID, ok = key.Name(MaxNameBytes)
		if line := r.keys[s.KeyID]; ok && line != 0 {
			key.Fault("this key is there twice: first in line %d", line)
		}
		r.keys[s.KeyID] = key.Line()
	}
	source, bound := fields["source"]
	if bound {
		s.Source, _ = source.Name(courier.MaxIDLength)
	}
	if at, given := fields["not_before"]; given {
		s.NotBefore, _ = at.Time()
	}
	if at, given := fields["not_after"]; given {
		if s.NotAfter, ok = at.Time(); ok && !s.NotBefore.Before(s.NotAfter) {
			at.Fault("not_after must be later than not_before")
		}
	}
	s.Value = r.value(v, fields)
	r.all = append(r.all, s)

	if !bound {
		r.notes = append(r.notes, fmt.Sprintf("%s: %s has no source: it may sign for every source", v.Place(), called(s)))
	}
	if !s.NotAfter.IsZero() && !r.now.Before(s.NotAfter) {
		r.notes = append(r.notes, fmt.Sprintf("%s: %s has expired at %s", v.Place(), called(s), s.NotAfter.Format(time.RFC3339)))
		return
	}
	r.current++
	if s.ValidAt(r.now) {
		r.valid++
	}
	if s.KeyID == "" {
		r.keyless = append(r.keyless, v)
	}
}

// value returns the secret itself, nil if there is none to use.
func (r *secretsReader) value(v strictyaml.Value, fields map[string]strictyaml.Value) []byte {
	place, direct := fields["secret"]
	variable, indirect := fields["secret_env"]
	if direct == indirect {
		v.Fault("give each secret by one of secret and secret_env")
		return nil
	}
	var text string
	var ok bool
	if direct {
		text, ok = place.Text()
	} else {
		place = variable
		var name string
		if name, ok = variable.Name(MaxNameBytes); ok {
			if text, _ = r.lookupEnv(name); text == "" {
				variable.Fault("there is no such environment variable, or it is empty")
				return nil
			}
		}
	}
	switch {
	case !ok:
		return nil
	case len(text) < MinSecretBytes || len(text) > MaxSecretBytes:
		place.Fault("a secret has %d to %d bytes; make one with: openssl rand -hex 32", MinSecretBytes, MaxSecretBytes)
	case strings.TrimSpace(text) != text:
		place.Fault("a secret has no space or end of line at its ends")
	case r.values[text] != 0:
		place.Fault("this secret is there twice: first in line %d", r.values[text])
	default:
		r.values[text] = place.Line()
	}
	return []byte(text)
}

// called is what messages call a secret.
func called(s courier.Secret) string {
	switch {
	case s.KeyID != "" && s.Source != "":
		return fmt.Sprintf("secret %q of source %q", s.KeyID, s.Source)
	case s.KeyID != "":
		return fmt.Sprintf("secret %q", s.KeyID)
	case s.Source != "":
		return fmt.Sprintf("a secret of source %q", s.Source)
	}
	return "a secret"
}
