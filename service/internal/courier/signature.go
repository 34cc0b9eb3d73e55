package courier

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The headers of a signed request.
const (
	HeaderTimestamp = "X-Signature-Timestamp"
	HeaderSignature = "X-Signature"
	HeaderKeyID     = "X-Signature-Key"
)

const (
	// DefaultMaxSkew is how far a signature's timestamp may lie from now, either
	// way.
	DefaultMaxSkew = 300 * time.Second
	// MaxSecrets bounds a keyring.
	MaxSecrets = 4096
	// MaxTried bounds the secrets that are tried on one request without
	// X-Signature-Key: each costs a pass over a body that nobody vouches for yet.
	MaxTried = 64

	algorithm = "hmac-sha256"
)

// Secret is a key that a courier signs with.
type Secret struct {
	// KeyID names the secret in X-Signature-Key. It may be empty; else it is
	// unique in a keyring.
	KeyID string
	// Source is the only source whose events the secret may sign. Empty: any.
	Source string
	// Value is the key itself, not empty.
	Value []byte
	// NotBefore and NotAfter bound its validity: from NotBefore on, until just
	// before NotAfter. Zero: no bound.
	NotBefore, NotAfter time.Time
}

// ValidAt reports whether the secret may sign at that time.
func (s Secret) ValidAt(now time.Time) bool {
	return !now.Before(s.NotBefore) && (s.NotAfter.IsZero() || now.Before(s.NotAfter))
}

// Keyring holds the secrets that the gateway trusts. It is safe for concurrent
// use.
type Keyring struct {
	secrets atomic.Pointer[[]*signer]
}

// signer is a secret, and hashes that are keyed with it already.
type signer struct {
	Secret

	macs sync.Pool
}

func (s *signer) digest(timestamp string, body []byte) []byte {
	mac, ok := s.macs.Get().(hash.Hash)
	if !ok {
		mac = hmac.New(sha256.New, s.Value)
	}
	defer s.macs.Put(mac)
	mac.Reset()
	return digest(mac, timestamp, body)
}

// NewKeyring returns a keyring of the given secrets. It refuses an empty
// keyring, empty values, key ids that repeat, and validity times that never hold.
func NewKeyring(secrets ...Secret) (*Keyring, error) {
	k := &Keyring{}
	if err := k.Replace(secrets...); err != nil {
		return nil, err
	}
	return k, nil
}

// Replace puts other secrets in the place of all that the keyring has. What
// [NewKeyring] refuses changes nothing.
func (k *Keyring) Replace(secrets ...Secret) error {
	if len(secrets) == 0 {
		return errors.New("keyring: no secret given; nothing could be accepted")
	}
	if len(secrets) > MaxSecrets {
		return fmt.Errorf("keyring: %d secrets, at most %d are supported", len(secrets), MaxSecrets)
	}
	secrets = slices.Clone(secrets)
	known := map[string]bool{}
	for i := range secrets {
		s := &secrets[i]
		s.Value = slices.Clone(s.Value)
		switch {
		case len(s.Value) == 0:
			return fmt.Errorf("keyring: secret %d (key id %q) is empty", i, s.KeyID)
		case s.KeyID != "" && known[s.KeyID]:
			return fmt.Errorf("keyring: key id %q is given twice", s.KeyID)
		case !s.NotAfter.IsZero() && !s.NotBefore.Before(s.NotAfter):
			return fmt.Errorf("keyring: secret %d (key id %q) is never valid: it ends before it begins", i, s.KeyID)
		}
		known[s.KeyID] = true
	}
	signers := make([]*signer, len(secrets))
	for i, s := range secrets {
		signers[i] = &signer{Secret: s}
	}
	k.secrets.Store(&signers)
	return nil
}

// Signature is a request's signature as its headers give it.
type Signature struct {
	// Timestamp is in Unix seconds, decimal.
	Timestamp string
	// Value is the MAC: hexadecimal or base64, also without padding or in the
	// URL's alphabet.
	Value string
	// KeyID may be empty.
	KeyID string
}

// SignatureError says why a signature was refused. It tells nothing about the
// secrets.
type SignatureError struct {
	// Header is the one at fault.
	Header string
	// Problem says what is wrong with it.
	Problem string
}

func (e *SignatureError) Error() string { return e.Header + " " + e.Problem }

// Verified is a signature that holds.
type Verified struct {
	Meta SignatureMeta
	// sources of the secrets that match; "" stands for any.
	sources []string
}

// Covers reports whether one of the secrets that match may sign for source.
func (v Verified) Covers(source string) bool {
	return slices.Contains(v.sources, source) || slices.Contains(v.sources, "")
}

// Verify checks that body was signed with a secret that is valid now, and at a
// time that is at most maxSkew away from now. It must see the body's bytes as
// they were received. Whoever relies on an event's source must ask
// [Verified.Covers] too.
//
// The error is a [*SignatureError]. The comparison takes the same time wherever
// two MACs differ, and however many of the secrets match.
func (k *Keyring) Verify(sig Signature, body []byte, now time.Time, maxSkew time.Duration) (Verified, error) {
	if sig.Timestamp == "" {
		return Verified{}, &SignatureError{HeaderTimestamp, "is missing"}
	}
	if sig.Value == "" {
		return Verified{}, &SignatureError{HeaderSignature, "is missing"}
	}
	timestamp, err := parseTimestamp(sig.Timestamp)
	if err != nil {
		return Verified{}, err
	}
	if skew := now.Sub(time.Unix(timestamp, 0)); skew > maxSkew {
		return Verified{}, &SignatureError{HeaderTimestamp, fmt.Sprintf("is too old: more than %s ago; check the clock, and sign again", maxSkew)}
	} else if skew < -maxSkew {
		return Verified{}, &SignatureError{HeaderTimestamp, fmt.Sprintf("is more than %s in the future; check the clock, and sign again", maxSkew)}
	}
	mac, err := decodeMAC(sig.Value)
	if err != nil {
		return Verified{}, err
	}
	candidates, err := k.candidates(sig.KeyID, now)
	if err != nil {
		return Verified{}, err
	}
	v := Verified{Meta: SignatureMeta{Algorithm: algorithm, Timestamp: timestamp, Signature: sig.Value}}
	for _, s := range candidates {
		if hmac.Equal(mac, s.digest(sig.Timestamp, body)) {
			v.sources = append(v.sources, s.Source)
		}
	}
	if len(v.sources) == 0 {
		return Verified{}, &SignatureError{HeaderSignature, "does not match the timestamp and the body"}
	}
	return v, nil
}

func (k *Keyring) candidates(keyID string, now time.Time) ([]*signer, error) {
	var found []*signer
	for _, s := range *k.secrets.Load() {
		if s.ValidAt(now) && (keyID == "" || s.KeyID == keyID) {
			found = append(found, s)
		}
	}
	switch {
	case keyID != "" && len(found) == 0:
		return nil, &SignatureError{HeaderKeyID, "names no secret that is valid now"}
	case len(found) == 0:
		return nil, &SignatureError{HeaderSignature, "cannot be checked: no secret is valid now"}
	case len(found) > MaxTried:
		return nil, &SignatureError{HeaderKeyID, "is missing: there are too many secrets to try them all"}
	}
	return found, nil
}

// parseTimestamp takes digits only: no sign, no space, and too few of them to
// overflow anything.
func parseTimestamp(s string) (int64, error) {
	const most = 11 // until the year 5138
	if len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, &SignatureError{HeaderTimestamp, "must be a time in Unix seconds, digits only"}
}

func decodeMAC(s string) ([]byte, error) {
	var mac []byte
	var err error
	switch len(s) {
	case hex.EncodedLen(sha256.Size):
		mac, err = hex.DecodeString(s)
	case base64.StdEncoding.EncodedLen(sha256.Size), base64.RawStdEncoding.EncodedLen(sha256.Size):
		s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimSuffix(s, "="))
		mac, err = base64.RawStdEncoding.DecodeString(s)
	}
	if err != nil || len(mac) != sha256.Size {
		return nil, &SignatureError{HeaderSignature, "must be an HMAC-SHA256 in hexadecimal or base64"}
	}
	return mac, nil
}

func digest(mac hash.Hash, timestamp string, body []byte) []byte {
	mac.Write([]byte(timestamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// Sign returns the signature of body as a courier makes it at the given time:
// the values of the headers [HeaderTimestamp] and [HeaderSignature], the latter
// in hexadecimal.
func Sign(secret, body []byte, at time.Time) (timestamp, signature string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	return timestamp, hex.EncodeToString(digest(hmac.New(sha256.New, secret), timestamp, body))
}
