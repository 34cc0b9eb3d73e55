package sqlstore

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// Timestamp scans a point in time from whatever the driver has; NULL is zero, and
// so is text that is none, which a person may have written: it must not stop the
// reader.
type Timestamp struct{ time.Time }

// TimeLayout is how dialects without a type for it write a point in time: of
// fixed width, so that its order is that of the text.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// Scan implements [sql.Scanner].
func (t *Timestamp) Scan(v any) (err error) {
	switch v := v.(type) {
	case nil:
		t.Time = time.Time{}
	case time.Time:
		t.Time = v.UTC()
	case string:
		t.Time = parseTime(v)
	case []byte:
		t.Time = parseTime(string(v))
	default:
		err = fmt.Errorf("a point in time is stored as %T", v)
	}
	return err
}

func parseTime(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, time.DateTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// text scans a string that may be NULL.
type text string

// Scan implements [sql.Scanner].
func (t *text) Scan(v any) error {
	var s sql.NullString
	if err := s.Scan(v); err != nil {
		return err
	}
	*t = text(s.String)
	return nil
}

// jsonText scans a JSON document into V.
type jsonText[V any] struct{ V V }

// Scan implements [sql.Scanner].
func (j *jsonText[V]) Scan(v any) error {
	var s text
	if err := s.Scan(v); err != nil || s == "" {
		return err
	}
	return json.Unmarshal([]byte(s), &j.V)
}

var (
	_ sql.Scanner = (*Timestamp)(nil)
	_ sql.Scanner = (*text)(nil)
)
