package eventlog

import "time"

// For the tests.
var (
	FitsJSONB = fitsJSONB
	Border    = border
)

// Statement is one that the log would run.
type Statement struct {
	Text string
	Args []any
}

// DueStatements are those by which the pruner looks for what is due.
func (l *Log) DueStatements(now time.Time, limit int) (list []Statement) {
	for _, c := range l.categories {
		before, _ := border(c.Keep, now)
		for _, step := range l.steps(c, before) {
			s := step(limit)
			list = append(list, Statement{s.text(), s.args})
		}
	}
	return list
}

// PageStatement is the one that reads the second page.
func (l *Log) PageStatement(f Filter, createdAt any, eventID string) Statement {
	s := l.pageQuery(f, &page{after: &cursor{createdAt, eventID}, size: pageEntries})
	return Statement{s.text(), s.args}
}
