package sqlbroker_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing/broker/sqlbroker"
	"github.com/waybill-go/waybill/internal/testserver"
)

// That a server takes no messages now is no fault of theirs.
func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	dbURL := testserver.PostgresURL(t)
	db := open(t, dbURL)
	p := newPublisher(t, db, sqlbroker.PublisherConfig{})
	publish(t, p, numbered(0, 1)...)
	var state interface{ Temporary() bool }
	if err := p.Publish(topic, message.NewMessage("nul\x00", nil)); err == nil || errors.As(err, &state) {
		t.Errorf("a message that cannot be stored: %v", err)
	}
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	standby := newPublisher(t, open(t, dbURL), sqlbroker.PublisherConfig{})
	if err := standby.Publish(topic, numbered(1, 2)...); !errors.As(err, &state) || !state.Temporary() {
		t.Errorf("a server that only reads: %v", err)
	}
}
