package strictjson

import "fmt"

// Kind says which rule a text breaks.
type Kind int

// The rules of [Check].
const (
	Syntax Kind = iota + 1
	InvalidUTF8
	TrailingData
	DuplicateKey
	TooDeep
	LoneSurrogate
	NumberTooLong
)

var kindNames = [...]string{
	Syntax:        "syntax error",
	InvalidUTF8:   "invalid UTF-8",
	TrailingData:  "data after the JSON value",
	DuplicateKey:  "duplicate key",
	TooDeep:       "nested too deep",
	LoneSurrogate: "lone surrogate",
	NumberTooLong: "number too long",
}

// String names the rule in a few words.
func (k Kind) String() string {
	if k < Syntax || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

// Error is what [Check] returns: the first fault of a text.
type Error struct {
	Kind Kind
	// Offset is the index of the byte at fault. It is the text's length where
	// the text ends too early.
	Offset int
	// Detail says more, such as the duplicated key; it may be empty. It can
	// quote up to 64 bytes of the text.
	Detail string
}

func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s at byte %d", e.Kind, e.Offset)
	}
	return fmt.Sprintf("%s at byte %d: %s", e.Kind, e.Offset, e.Detail)
}
