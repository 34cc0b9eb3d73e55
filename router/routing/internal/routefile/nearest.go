package routefile

import (
	"iter"
	"slices"
)

// Suggest returns a question after the one of the known names that is meant, to be put behind a message, or "".
func Suggest(name string, known iter.Seq[string]) string { return suggest(name, slices.Sorted(known)) }
