package sqlbroker

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// QuarantineTopic is the topic that rows which are no message go to.
const QuarantineTopic = "quarantine"

const (
	messagesPrefix = "watermill_"
	offsetsPrefix  = "watermill_offsets_"

	// Postgres cuts longer names at this length, so that two topics could share a table.
	maxIdentifier = 63
	maxTopic      = maxIdentifier - len(offsetsPrefix)
	maxGroup      = 255 // the width of its column, in characters
)

var topicCharacters = regexp.MustCompile(`^[A-Za-z0-9\-$:._]+$`)

// checkTopic refuses names whose tables could be those of another topic.
func checkTopic(topic string) error {
	switch {
	case len(topic) > maxTopic:
		return fmt.Errorf("sqlbroker: topic %q has %d bytes, and tables are named after it: use at most %d", topic, len(topic), maxTopic)
	case !topicCharacters.MatchString(topic):
		return fmt.Errorf("sqlbroker: topic %q: use only letters, digits and any of - $ : . _", topic)
	case strings.HasPrefix(topic, "offsets_"):
		return fmt.Errorf("sqlbroker: topic %q would have the table of another topic's offsets: use a name without \"offsets_\" in front", topic)
	}
	return nil
}

func checkGroup(group string) error {
	if group == "" || len(group) > maxGroup || strings.ContainsRune(group, 0) {
		return fmt.Errorf("sqlbroker: %.300q is no consumer group: name one with 1 to %d bytes, none of them 0", group, maxGroup)
	}
	return nil
}

// The tables of a topic, quoted.
func messagesTable(topic string) string { return `"` + messagesPrefix + topic + `"` }
func offsetsTable(topic string) string  { return `"` + offsetsPrefix + topic + `"` }

// SchemaSQL returns what makes the tables of a topic, for those whose application has no
// right to make any. It needs them for every topic (an ordered consumer has one for each
// of its partitions), and for [QuarantineTopic]. What is there is left as it is.
//
// They are watermill-sql's, but for payloads of any bytes and ids of any length.
func SchemaSQL(topic string) (string, error) {
	if err := checkTopic(topic); err != nil {
		return "", err
	}
	return `CREATE TABLE IF NOT EXISTS ` + messagesTable(topic) + ` (
	"offset" BIGSERIAL,
	"uuid" TEXT NOT NULL,
	"created_at" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
	"payload" BYTEA DEFAULT NULL,
	"metadata" JSON DEFAULT NULL,
	"transaction_id" xid8 NOT NULL,
	PRIMARY KEY ("transaction_id", "offset")
);
CREATE TABLE IF NOT EXISTS ` + offsetsTable(topic) + ` (
	consumer_group VARCHAR(255) NOT NULL,
	offset_acked BIGINT,
	last_processed_transaction_id xid8 NOT NULL,
	PRIMARY KEY (consumer_group)
);
`, nil
}

// CreateTopics makes the tables of topics, as [SchemaSQL] has it, where they are missing.
// Any number of processes may do so at a time. Publishers and subscribers do it by
// themselves, if they may.
func CreateTopics(ctx context.Context, db *sql.DB, topics ...string) error {
	for _, topic := range topics {
		if err := checkTopic(topic); err != nil {
			return err
		}
		if _, err := tablesOf(ctx, db, topic); err != nil {
			return err
		}
	}
	return nil
}

// tables is what differs from one topic's tables to another's.
type tables struct {
	id   uint32 // of the table of messages
	json bool   // what the payloads are: watermill-sql's own tables have JSON, unless told otherwise
}

// schemaLock is the advisory lock under which watermill-sql makes tables, too.
var schemaLock = func() int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte("schema_init:watermill"))
	return int64(h.Sum32() & 0x7fffffff)
}()

const createTries = 5

// tablesOf looks for a topic's tables, and makes them if there are none. It looks first:
// making one that is there needs the right to make one.
func tablesOf(ctx context.Context, db *sql.DB, topic string) (tables, error) {
	for try := 1; ; try++ {
		found, err := findTables(ctx, db, topic)
		if !errors.Is(err, sql.ErrNoRows) {
			return found, err
		}
		err = createTables(ctx, db, topic)
		if err == nil {
			continue
		}
		// Somebody who does not take the lock makes the tables, too.
		if try == createTries || !slices.Contains([]string{"23505", "42P07", "42710", "55P03"}, sqlState(err)) {
			return tables{}, fmt.Errorf("sqlbroker: make the tables of topic %q, or have them made (see SchemaSQL): %w", topic, err)
		}
	}
}

func findTables(ctx context.Context, db *sql.DB, topic string) (found tables, err error) {
	err = db.QueryRowContext(ctx, `
		SELECT a.attrelid::oid::bigint, a.atttypid IN ('json'::regtype, 'jsonb'::regtype)
		FROM pg_attribute a
		WHERE a.attrelid = to_regclass($1) AND a.attname = 'payload' AND to_regclass($2) IS NOT NULL`,
		messagesTable(topic), offsetsTable(topic)).Scan(&found.id, &found.json)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return found, fmt.Errorf("sqlbroker: look for the tables of topic %q: %w", topic, err)
	}
	return found, err
}

func createTables(ctx context.Context, db *sql.DB, topic string) error {
	schema, err := SchemaSQL(topic)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range append([]string{
		"SET LOCAL lock_timeout = '2s'",
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", schemaLock),
	}, strings.SplitAfter(schema, ";\n")...) {
		if statement == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// sqlState returns the code of the server's error, or "".
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

const undefinedTable = "42P01"

func checkDB(db *sql.DB) error {
	if db == nil {
		return errors.New("sqlbroker: the database is nil: give one")
	}
	if _, ok := db.Driver().(*stdlib.Driver); !ok {
		return fmt.Errorf("sqlbroker: the database has the driver %T: open it with pgx's (github.com/jackc/pgx/v5/stdlib)", db.Driver())
	}
	return nil
}

// position is that of a message in its topic: they are ordered by the transaction that
// published them, and in it by the order of publishing.
type position struct {
	tx     uint64
	offset int64
}

// callTimeout is how long the server may take for a statement that the broker needs.
const callTimeout = 10 * time.Second
