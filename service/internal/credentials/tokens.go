package credentials

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"sync/atomic"

	"github.com/waybill-go/waybill/service/internal/strictyaml"
)

// Scope is what a token may do.
type Scope string

// The scopes.
const (
	ScopeRead    Scope = "read"    // look at shipments, events and dead letters
	ScopeOperate Scope = "operate" // act on dead letters
)

// Bounds of tokens.
const (
	MaxTokens     = 1024
	MinTokenBytes = 16
	MaxTokenBytes = 4096
	hashPrefix    = "sha256:"
)

// Token is a bearer token by its hash.
type Token struct {
	// Name says whose it is; acts are recorded under it.
	Name   string
	Scopes []Scope

	hash [sha256.Size]byte
}

// May reports whether the token has a scope.
func (t Token) May(s Scope) bool {
	for _, has := range t.Scopes {
		if has == s {
			return true
		}
	}
	return false
}

// NewToken returns the token with this text.
func NewToken(name, text string, scopes ...Scope) Token {
	return Token{name, scopes, sha256.Sum256([]byte(text))}
}

// MakeToken makes a token up: its text, and the hash for a file.
func MakeToken() (text, hash string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	text = "wb_" + base64.RawURLEncoding.EncodeToString(b[:])
	return text, HashToken(text)
}

// HashToken returns what a file has in place of a token. The hash is not salted or slow: it is for tokens that nobody
// can guess, not for passwords.
func HashToken(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Tokens are the bearer tokens that the gateway knows. They are safe for concurrent use; the zero value has none.
type Tokens struct{ all atomic.Pointer[[]Token] }

// Replace puts other tokens in the place of all that there are.
func (t *Tokens) Replace(all ...Token) { t.all.Store(&all) }

// Find returns the token with this text. It takes the same time whichever it is, and if it is none.
func (t *Tokens) Find(text string) (found Token, ok bool) {
	all := t.all.Load()
	if all == nil {
		return found, false
	}
	got := sha256.Sum256([]byte(text))
	at := -1
	for i := range *all {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(got[:], (*all)[i].hash[:]), i, at)
	}
	if at < 0 {
		return found, false
	}
	return (*all)[at], true
}

// ReadTokens reads the file of operators' tokens at a path: a YAML list of mappings with the keys
//
//   - name: whose it is, unique,
//   - token: its text, of [MinTokenBytes] to [MaxTokenBytes] bytes, or better its hash (sha256:…, see
//     [MakeToken]), with which the file tells no secret; no two are the same,
//   - scopes: a list with read, or read and operate.
//
// It returns what is worth knowing, too. The error has each fault with its line and column.
func ReadTokens(path string) (all []Token, notes []string, err error) {
	f, err := strictyaml.Open(path)
	if err != nil {
		return nil, nil, err
	}
	r := tokensReader{names: map[string]int{}, hashes: map[[sha256.Size]byte]int{}}
	for _, v := range f.Root().List(MaxTokens) {
		all = append(all, r.read(v))
	}
	if err := f.Err(); err != nil {
		return nil, nil, err
	}
	if f.Shared != 0 && r.plain {
		notes = append(notes, sharedNote(path, f.Shared))
	}
	return all, notes, nil
}

type tokensReader struct {
	names  map[string]int // where they are, by line
	hashes map[[sha256.Size]byte]int
	plain  bool // a token is there as itself
}

func (r *tokensReader) read(v strictyaml.Value) (t Token) {
	fields, ok := v.Fields("name", "token", "scopes")
	if !ok {
		return t
	}
	for _, needed := range []string{"name", "token", "scopes"} {
		if _, given := fields[needed]; !given {
			v.Fault("%s is missing", needed)
			return t
		}
	}
	if t.Name, ok = fields["name"].Name(MaxNameBytes); ok {
		if line := r.names[t.Name]; line != 0 {
			fields["name"].Fault("this name is there twice: first in line %d", line)
		}
		r.names[t.Name] = fields["name"].Line()
	}
	token := fields["token"]
	if text, ok := token.Text(); ok {
		t.hash = r.hash(token, text)
		if line := r.hashes[t.hash]; line != 0 {
			token.Fault("this token is there twice: first in line %d", line)
		}
		r.hashes[t.hash] = token.Line()
	}
	for _, scope := range fields["scopes"].List(2) {
		text, ok := scope.Text()
		switch {
		case !ok:
		case Scope(text) != ScopeRead && Scope(text) != ScopeOperate:
			scope.Fault("unknown scope%s; the scopes are read and operate", strictyaml.Meant(text, []string{"read", "operate"}))
		case t.May(Scope(text)):
			scope.Fault("this scope is there twice")
		default:
			t.Scopes = append(t.Scopes, Scope(text))
		}
	}
	if t.May(ScopeOperate) && !t.May(ScopeRead) {
		fields["scopes"].Fault("operate needs read, too: [read, operate]")
	}
	return t
}

func (r *tokensReader) hash(v strictyaml.Value, text string) (sum [sha256.Size]byte) {
	if digits, hashed := strings.CutPrefix(text, hashPrefix); hashed {
		if n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*len(sum))])); err != nil || n != len(sum) || len(digits) != 2*len(sum) {
			v.Fault("a hash is sha256: and 64 hexadecimal digits, as gateway token prints it")
		}
		return sum
	}
	r.plain = true
	switch {
	case len(text) < MinTokenBytes || len(text) > MaxTokenBytes:
		v.Fault("a token has %d to %d bytes; make one with: gateway token", MinTokenBytes, MaxTokenBytes)
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		v.Fault("a token has printable ASCII characters only, and no space")
	}
	return sha256.Sum256([]byte(text))
}
