package pgstore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/sqlstore"
)

var dialect = sqlstore.Dialect{
	Timestamp:  "timestamptz",
	ForUpdate:  "FOR UPDATE",
	ForShare:   "FOR SHARE",
	SkipLocked: "FOR UPDATE SKIP LOCKED",
	Place:      "ctid",
	// Not IN: that is a join, for which the server may read all of the table, a thousand times over.
	Among:         func(selection string) string { return "ctid = ANY(ARRAY(" + selection + "))" },
	RowsPerInsert: 500,
	WritingCTE:    true,
	In:            func(expr, parameter string) string { return inArray(expr, parameter, "text[]") },
	InInts:        func(expr, parameter string) string { return inArray(expr, parameter, "bigint[]") },
	ListTable:     func(parameter string) string { return "(SELECT unnest(" + array(parameter, "text[]") + ") AS value)" },
	ListOfPairs: func(n, m string) string {
		return "(SELECT * FROM unnest(" + array(n, "bigint[]") + ", " + array(m, "bigint[]") + ") AS pairs(n, m))"
	},
	List:     func(values []string) any { return append([]string{}, values...) },
	Ints:     func(values []int64) any { return append([]int64{}, values...) },
	IntsText: intArray,
	// A lateral subquery reads the first rows of each partition from the index, and no
	// more; partition = ANY (…) ORDER BY seq would sort all that is pending. OFFSET 0 has
	// each list be read once, not for each row; most rows come after all of it. The first of the limits is for the planner,
	// which would expect a tenth of the table of the second, and compile a plan of such a
	// cost (JIT) anew for half a second each time.
	ClaimPartitions: `SELECT ` + sqlstore.OutboxColumns + `, 3
FROM (SELECT p, after, n, list AS flying, (SELECT COALESCE(max(seq), 0) FROM unnest(list) seq) AS last
	FROM (SELECT p, after, n, CAST(flying AS bigint[]) AS list
		FROM unnest(CAST($1 AS bigint[]), CAST($2 AS bigint[]), CAST($3 AS bigint[]), CAST($5 AS text[])) AS asked(p, after, n, flying)
		OFFSET 0) lists OFFSET 0) look
CROSS JOIN LATERAL (SELECT * FROM (SELECT * FROM event_outbox o
	WHERE status = 'pending' AND partition = look.p AND seq > look.after
		AND (due_at IS NULL OR due_at <= $4) AND (seq > look.last OR seq <> ALL(look.flying)) AND ` + sqlstore.NotHeld + `
	ORDER BY seq LIMIT ` + strconv.Itoa(eventing.MaxPartitionClaim) + `) first LIMIT look.n) claimed`,
	// An INSERT locks its table before it draws from the sequence, until the transaction
	// has ended and what it has committed can be seen. The locks are read for each row of
	// drawn, so after it. A role that may not read the sequence, which an INSERT does not
	// need, goes by the last row that it sees.
	Writers: `SELECT d.drawn, COALESCE(l.virtualtransaction, '') AS name
FROM (SELECT COALESCE((SELECT pg_sequence_last_value(s) FROM (SELECT CAST(pg_get_serial_sequence('event_outbox', 'seq') AS regclass) AS s OFFSET 0) named
	WHERE has_sequence_privilege(s, 'USAGE, SELECT')), (SELECT max(seq) FROM event_outbox), 0) AS drawn OFFSET 0) d
LEFT JOIN LATERAL (SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = CAST('event_outbox' AS regclass)
	AND mode = 'RowExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND d.drawn >= 0 OFFSET 0) l ON true`,
	Time: func(t time.Time) any {
		if t.IsZero() {
			return nil
		}
		return t.UTC()
	},
	Broken:     broken,
	Typed:      typed,
	Hurry:      "length(set_config('idle_in_transaction_session_timeout', '3s', true))",
	AppendMany: appendMany,
	LockKeys:   lockKeys(func(values []string) any { return values }),
}

// sqlDialect passes lists as text, which every driver of database/sql can.
var sqlDialect = func() sqlstore.Dialect {
	d := dialect
	d.List = func(values []string) any { return textArray(values) }
	d.Ints = func(values []int64) any { return intArray(values) }
	d.AppendMany = appendManyText
	d.LockKeys = lockKeys(func(values []string) any { return textArray(values) })
	return d
}()

// array is a list, of which (SELECT …) hides the length: for each short one the server would plan the statement anew, which
// takes longer than to run it.
func array(parameter, kind string) string { return "(SELECT CAST(" + parameter + " AS " + kind + "))" }

func inArray(expr, parameter, kind string) string {
	return expr + " = ANY(CAST(" + array(parameter, kind) + " AS " + kind + "))" // without the cast, ANY is of the rows
}

func intArray(values []int64) string {
	b := []byte{'{'}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, v, 10)
	}
	return string(append(b, '}'))
}

var quoteText = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// textArray writes an array literal
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
func textArray(values []string) string {
	elements := make([]*string, len(values))
	for i := range values {
		elements[i] = &values[i]
	}
	return nullableArray(elements)
}

// nullableArray writes an array literal in which nil is NULL.
func nullableArray(values []*string) string {
	size := 2
	for _, v := range values {
		if v != nil {
			size += len(*v) + len(*v)/8 + 3
		}
	}
	var b strings.Builder
	b.Grow(size)
	b.WriteByte('{')
	for i, v := range values {
		if i > 0 {
			b.WriteByte(',')
		}
		if v == nil {
			b.WriteString("NULL")
			continue
		}
		b.WriteByte('"')
		_, _ = quoteText.WriteString(&b, *v) // a builder takes everything
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// lockKeys locks in the order of the list, which is sorted.
func lockKeys(list func([]string) any) func(context.Context, sqlstore.Conn, []string) error {
	return func(ctx context.Context, c sqlstore.Conn, keys []string) error {
		_, err := c.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(k, 0)) FROM unnest(CAST($1 AS text[])) AS k`, list(keys))
		return err
	}
}
