package routing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/router/routing/internal/condition"
	"github.com/waybill-go/waybill/router/routing/internal/routefile"
)

// Level is how much a finding matters.
type Level string

// The levels of findings.
const (
	LevelError   Level = "error"   // the table is not fit to run: it would drop events
	LevelWarning Level = "warning" // it cannot be meant so
	LevelInfo    Level = "info"    // worth knowing
)

// Finding is what is worth knowing about a routing file, and where. Lines and columns count from 1; 0 is the file as a whole.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Level   Level  `json:"level"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// String is FILE:LINE:COLUMN: LEVEL: MESSAGE (CODE).
func (f Finding) String() string {
	place := f.File
	if f.Line > 0 {
		place = fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
	}
	return fmt.Sprintf("%s: %s: %s (%s)", place, f.Level, f.Message, f.Code)
}

// Lint returns what is legal in the table's file and still cannot be meant, in the file's order. The same file has the same
// findings. Codes are stable; messages are for people, and say what to write where.
func (t *Table) Lint() []Finding {
	l := linter{table: t, keys: map[*condition.Program]string{}, impossible: map[*routefile.Expr]bool{}}
	for i := range t.file.Events {
		l.types = append(l.types, t.types[t.file.Events[i].Text])
	}
	for _, look := range []func(){l.matrix, l.comparisons, l.cells, l.modifiers, l.lookups, l.schemas, l.parameters, l.retention} {
		look()
	}
	slices.SortStableFunc(l.found, func(a, b Finding) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Code, b.Code), strings.Compare(a.Message, b.Message))
	})
	return l.found
}

// LintFile lints a routing file. What keeps it from being compiled is a finding, too: of the code "invalid". The error is that of
// reading it.
func LintFile(path string) ([]Finding, error) {
	t, err := Load(path)
	var faulty *routefile.Error
	switch {
	case errors.As(err, &faulty):
		var all []Finding
		for _, f := range faulty.Faults {
			all = append(all, Finding{faulty.File, f.Pos.Line, f.Pos.Column, LevelError, "invalid", f.Message})
		}
		return all, nil
	case err != nil:
		return nil, err
	}
	return t.Lint(), nil
}

// linter collects findings. Each of its steps looks at one part of the file. What is in the file once and compiled for
// many event types, such as a rule under "*", is found fault with only if it is at fault for all of them.
type linter struct {
	table *Table
	types []*eventType // in the file's order
	met   []*modifier  // see compiled
	keys  map[*condition.Program]string
	// impossible are the expressions with a comparison that cannot hold. What follows from it is not told, too.
	impossible map[*routefile.Expr]bool
	found      []Finding
}

func (l *linter) error(at routefile.Pos, code, format string, args ...any) {
	l.add(LevelError, at, code, format, args)
}

func (l *linter) warn(at routefile.Pos, code, format string, args ...any) {
	l.add(LevelWarning, at, code, format, args)
}

func (l *linter) info(at routefile.Pos, code, format string, args ...any) {
	l.add(LevelInfo, at, code, format, args)
}

func (l *linter) add(level Level, at routefile.Pos, code, format string, args []any) {
	l.found = append(l.found, Finding{l.table.file.Name, at.Line, at.Column, level, code, fmt.Sprintf(format, args...)})
}

// key identifies a condition: equal ones have equal keys, and that which is always true has "".
func (l *linter) key(p *condition.Program) string {
	if p == nil {
		return ""
	}
	k, known := l.keys[p]
	if !known {
		k = p.Key()
		l.keys[p] = k
	}
	return k
}

// always reports whether a condition cannot but hold: not if a lookup that it needs may be missing.
func always(p *condition.Program, needs []int) bool {
	return p == nil || isConstant(p, true) && len(needs) == 0
}

func isConstant(p *condition.Program, value bool) bool {
	if p == nil {
		return false
	}
	is, constant := p.Constant()
	return constant && is == value
}

// maxListed is how many names a message has at most.
const maxListed = 5

// listed are names for a message.
func listed(names []string) string {
	if len(names) <= maxListed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
}
