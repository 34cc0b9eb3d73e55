package strictjson

import (
	"bytes"
	"encoding/json"
)

// AppendString appends s as a JSON string, as [encoding/json] does without escapes for HTML:
// what is not UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; !plain[c] || c >= 0x7f {
			return appendEscaped(dst, s)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendEscaped(dst []byte, s string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // strings always encode
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte{'\n'})...)
}
