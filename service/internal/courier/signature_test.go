package courier

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	now    = time.Date(2026, 2, 26, 12, 0, 0, 0, time.UTC)
	secret = []byte("a secret of some length")
	other  = []byte("another secret, just as long")
	body   = []byte(`{"a":1}`)
)

func keyring(t *testing.T, secrets ...Secret) *Keyring {
	t.Helper()
	k, err := NewKeyring(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSignKnownAnswer(t *testing.T) {
	t.Parallel()
	// printf '1772107200.{"a":1}' | openssl dgst -sha256 -hmac key
	timestamp, signature := Sign([]byte("key"), body, now)
	if timestamp != "1772107200" || signature != "fce72f4bf0325a79e6994fa95bb410ee6d454aa7fedb87a0923de33ee73c2cf8" {
		t.Fatalf("got %s %s", timestamp, signature)
	}
}

func TestVerifyEncodings(t *testing.T) {
	t.Parallel()
	k := keyring(t, Secret{Value: secret})
	timestamp, signature := Sign(secret, body, now)
	mac, _ := hex.DecodeString(signature)
	for name, value := range map[string]string{
		"hex": signature, "upper case hex": strings.ToUpper(signature),
		"base64": base64.StdEncoding.EncodeToString(mac), "raw base64": base64.RawStdEncoding.EncodeToString(mac),
		"URL base64": base64.URLEncoding.EncodeToString(mac), "raw URL base64": base64.RawURLEncoding.EncodeToString(mac),
	} {
		v, err := k.Verify(Signature{Timestamp: timestamp, Value: value}, body, now, DefaultMaxSkew)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if want := (SignatureMeta{"hmac-sha256", now.Unix(), value}); v.Meta != want {
			t.Errorf("%s: got %+v, want %+v", name, v.Meta, want)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	k := keyring(t, Secret{KeyID: "k1", Value: secret})
	timestamp, signature := Sign(secret, body, now)
	at := func(d time.Duration) Signature {
		ts, value := Sign(secret, body, now.Add(d))
		return Signature{Timestamp: ts, Value: value}
	}
	_, forged := Sign(other, body, now)
	_, altered := Sign(secret, []byte(`{"a":2}`), now)
	later, _ := Sign(secret, body, now.Add(time.Second))
	for _, tc := range []struct {
		name   string
		sig    Signature
		header string // "" : accepted
	}{
		{"good", Signature{Timestamp: timestamp, Value: signature}, ""},
		{"good by key id", Signature{Timestamp: timestamp, Value: signature, KeyID: "k1"}, ""},
		{"unknown key id", Signature{Timestamp: timestamp, Value: signature, KeyID: "k2"}, HeaderKeyID},
		{"300 s old", at(-300 * time.Second), ""},
		{"301 s old", at(-301 * time.Second), HeaderTimestamp},
		{"300 s ahead", at(300 * time.Second), ""},
		{"301 s ahead", at(301 * time.Second), HeaderTimestamp},
		{"no timestamp", Signature{Value: signature}, HeaderTimestamp},
		{"no signature", Signature{Timestamp: timestamp}, HeaderSignature},
		{"timestamp altered", Signature{Timestamp: later, Value: signature}, HeaderSignature},
		{"timestamp padded", Signature{Timestamp: "0" + timestamp, Value: signature}, HeaderSignature},
		{"timestamp signed", Signature{Timestamp: "+" + timestamp, Value: signature}, HeaderTimestamp},
		{"timestamp in ms", Signature{Timestamp: timestamp + "000", Value: signature}, HeaderTimestamp},
		{"timestamp huge", Signature{Timestamp: strings.Repeat("9", 40), Value: signature}, HeaderTimestamp},
		{"timestamp text", Signature{Timestamp: "2026-02-26T12:00:00Z", Value: signature}, HeaderTimestamp},
		{"other secret", Signature{Timestamp: timestamp, Value: forged}, HeaderSignature},
		{"other body", Signature{Timestamp: timestamp, Value: altered}, HeaderSignature},
		{"truncated", Signature{Timestamp: timestamp, Value: signature[:62]}, HeaderSignature},
		{"not hex", Signature{Timestamp: timestamp, Value: strings.Repeat("z", 64)}, HeaderSignature},
		{"zeros", Signature{Timestamp: timestamp, Value: strings.Repeat("0", 64)}, HeaderSignature},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := k.Verify(tc.sig, body, now, DefaultMaxSkew)
			var fault *SignatureError
			switch {
			case tc.header == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tc.header != "" && (!errors.As(err, &fault) || fault.Header != tc.header):
				t.Fatalf("got %v, want %s at fault", err, tc.header)
			}
		})
	}
}

func TestVerifySeveralSecrets(t *testing.T) {
	t.Parallel()
	k := keyring(t,
		Secret{KeyID: "old", Source: "x", Value: secret, NotAfter: now},
		Secret{KeyID: "next", Source: "x", Value: []byte("to come"), NotBefore: now.Add(time.Second)},
		Secret{KeyID: "x", Source: "x", Value: other},
		Secret{KeyID: "shared", Source: "y", Value: other},
		Secret{KeyID: "any", Value: []byte("for all")},
	)
	verify := func(value []byte, keyID string, at time.Time) (Verified, error) {
		ts, signature := Sign(value, body, at)
		return k.Verify(Signature{Timestamp: ts, Value: signature, KeyID: keyID}, body, at, DefaultMaxSkew)
	}
	if _, err := verify(secret, "", now); err == nil {
		t.Error("a secret was taken after its end")
	}
	if _, err := verify(secret, "old", now.Add(-time.Second)); err != nil {
		t.Errorf("a valid secret was refused: %v", err)
	}
	if _, err := verify([]byte("to come"), "next", now); err == nil {
		t.Error("a secret was taken before its time")
	}
	if _, err := verify(other, "any", now); err == nil {
		t.Error("a key id was taken with another's secret")
	}
	covers := func(value []byte, keyID string, want map[string]bool) {
		t.Helper()
		v, err := verify(value, keyID, now)
		if err != nil {
			t.Fatal(err)
		}
		for source, covered := range want {
			if v.Covers(source) != covered {
				t.Errorf("covers %q: %v, want %v", source, !covered, covered)
			}
		}
	}
	covers(other, "", map[string]bool{"x": true, "y": true, "z": false, "": false})
	covers(other, "x", map[string]bool{"x": true, "y": false})
	covers([]byte("for all"), "", map[string]bool{"x": true, "z": true})
	if (Verified{}).Covers("") {
		t.Error("no signature covers a source")
	}
}

func TestVerifyTriesBoundedly(t *testing.T) {
	t.Parallel()
	secrets := make([]Secret, MaxTried+1)
	for i := range secrets {
		secrets[i] = Secret{KeyID: strings.Repeat("k", i+1), Value: secret}
	}
	k := keyring(t, secrets...)
	ts, value := Sign(secret, body, now)
	var fault *SignatureError
	if _, err := k.Verify(Signature{Timestamp: ts, Value: value}, body, now, DefaultMaxSkew); !errors.As(err, &fault) || fault.Header != HeaderKeyID {
		t.Fatalf("got %v, want a demand for %s", err, HeaderKeyID)
	}
	if _, err := k.Verify(Signature{Timestamp: ts, Value: value, KeyID: "kk"}, body, now, DefaultMaxSkew); err != nil {
		t.Fatal(err)
	}
}

func TestNewKeyringRefuses(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][]Secret{
		"nothing":       {},
		"empty value":   {{KeyID: "a"}},
		"twice":         {{KeyID: "a", Value: secret}, {KeyID: "a", Value: other}},
		"never valid":   {{Value: secret, NotBefore: now, NotAfter: now}},
		"far too many":  make([]Secret, MaxSecrets+1),
		"ends too soon": {{Value: secret, NotBefore: now, NotAfter: now.Add(-time.Hour)}},
	} {
		if _, err := NewKeyring(secrets...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k, err := NewKeyring(Secret{Value: secret})
	if err != nil {
		b.Fatal(err)
	}
	kilobyte := []byte(strings.Repeat("x", 1024))
	ts, value := Sign(secret, kilobyte, now)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Verify(Signature{Timestamp: ts, Value: value}, kilobyte, now, DefaultMaxSkew); err != nil {
			b.Fatal(err)
		}
	}
}
