package sqlbroker

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
)

// insert is a statement. Its rows are arrays: Postgres takes 65,535 parameters at most,
// and a statement is prepared once, however many rows it has.
type insert struct {
	sql      string
	uuids    []string
	payloads [][]byte
	metadata []string
}

func (i insert) args() []any { return []any{i.uuids, i.payloads, i.metadata} }

func insertSQL(topic string, t tables) string {
	payload := "payload"
	if t.json {
		payload = "convert_from(payload, 'UTF8')::json"
	}
	return `INSERT INTO ` + messagesTable(topic) + ` (uuid, payload, metadata, transaction_id)
		SELECT uuid, ` + payload + `, metadata::json, pg_current_xact_id()
		FROM unnest($1::text[], $2::bytea[], $3::text[]) WITH ORDINALITY AS r(uuid, payload, metadata, n)
		ORDER BY n`
}

// appendInserts splits a batch into statements of bounded size.
func appendInserts(inserts []insert, cfg PublisherConfig, b batch, t tables) ([]insert, error) {
	sql := insertSQL(b.topic, t)
	var next insert
	size := 0
	for i, m := range b.msgs {
		if m == nil {
			return nil, fmt.Errorf("message %d of %d is nil: publish without it", i+1, len(b.msgs))
		}
		metadata, err := encodeMetadata(m.Metadata)
		if err != nil {
			return nil, fmt.Errorf("encode the metadata of message %d of %d: %w", i+1, len(b.msgs), err)
		}
		n := len(m.UUID) + len(m.Payload) + len(metadata)
		if len(next.uuids) == cfg.InsertMessages || len(next.uuids) > 0 && size+n > cfg.InsertBytes {
			inserts, next, size = append(inserts, next), insert{}, 0
		}
		size += n
		next.sql = sql
		next.uuids = append(next.uuids, m.UUID)
		next.payloads = append(next.payloads, m.Payload)
		next.metadata = append(next.metadata, metadata)
	}
	return append(inserts, next), nil
}

func encodeMetadata(m message.Metadata) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	encoded, err := json.Marshal(m)
	return string(encoded), err
}
