package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/waybill-go/waybill/eventing"
)

// redoDoc is what follows from a commit, in this order.
type redoDoc struct {
	At  time.Time `bson:"at"` // on the clock of the machine
	Ops []op      `bson:"ops"`
}

// op is one write that follows from a commit. Each may be done several times, also by
// several processes at once, and late: then it changes nothing any more.
type op struct {
	Do         string   `bson:"do"`
	Collection string   `bson:"collection,omitempty"`
	Document   bson.Raw `bson:"document,omitempty"`
	ID         string   `bson:"id,omitempty"`
	Seq        int64    `bson:"seq,omitempty"`
	Rev        int64    `bson:"rev,omitempty"` // of the target's document

	Consumer   string    `bson:"consumer,omitempty"`
	EventID    string    `bson:"eventId,omitempty"`
	Generation int       `bson:"generation,omitempty"`
	Version    string    `bson:"version,omitempty"`
	At         time.Time `bson:"at,omitempty"`
	Death      *deathDoc `bson:"death,omitempty"`
}

const (
	doInsert      = "insert"       // Document into Collection, unless its _id is there
	doUpdate      = "update"       // fields of ID in Collection: Document, unless a later step has
	doBury        = "bury"         // Death
	doExhume      = "exhume"       // remove the dead letter of EventID at Consumer
	doTakeBack    = "take back"    // the outbox row Seq, if it is sent: failed
	doFail        = "fail"         // the outbox row ID, if it is pending: failed, At, with Version
	doDropReplays = "drop replays" // pending outbox rows of EventID for Consumer, up to Generation
	doDropByHand  = "drop by hand" // the hand-written outbox row ID
)

// deathDoc is a dead letter as it is to be.
type deathDoc struct {
	EventID string    `bson:"eventId"`
	Entry   deadEntry `bson:"entry"`
	// Of the event; left as they are unless Dies.
	Dies      bool    `bson:"dies,omitempty"`
	EventType string  `bson:"eventType,omitempty"`
	Attempts  int     `bson:"attempts,omitempty"` // more than before
	Payload   payload `bson:"payload,omitempty"`  // if not nil
}

func insertOp(collection string, doc any) (op, error) {
	document, err := raw(doc)
	return op{Do: doInsert, Collection: collection, Document: document}, err
}

// redo does what follows from a commit.
func (s *Store) redo(ctx context.Context, ops []op) error {
	for len(ops) > 0 {
		if err := eventing.Fault(ctx, eventing.FaultCompleting); err != nil {
			return &crash{err}
		}
		n := alike(ops)
		if err := s.doAll(ctx, ops[:n]); err != nil {
			return err
		}
		ops = ops[n:]
	}
	return nil
}

// alike returns how many of the next steps insert into one collection.
func alike(ops []op) int {
	n := 1
	for ops[0].Do == doInsert && n < len(ops) && ops[n].Do == doInsert && ops[n].Collection == ops[0].Collection {
		n++
	}
	return n
}

// doAll does several steps at once, if none of them has been done before.
func (s *Store) doAll(ctx context.Context, ops []op) error {
	if len(ops) > 1 {
		docs := make([]bson.Raw, len(ops))
		for i := range ops {
			docs[i] = ops[i].Document
		}
		_, err := s.db.Collection(ops[0].Collection).InsertMany(ctx, docs) // in their order
		if !mongo.IsDuplicateKeyError(err) {
			return typed(err)
		}
	}
	for i := range ops {
		if err := s.do(ctx, &ops[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) do(ctx context.Context, o *op) (err error) {
	switch o.Do {
	case doInsert:
		_, err = s.db.Collection(o.Collection).InsertOne(ctx, o.Document)
		if mongo.IsDuplicateKeyError(err) {
			err = nil
		}
	case doUpdate:
		_, err = s.db.Collection(o.Collection).UpdateOne(ctx, o.older(), bson.D{{Key: "$set", Value: o.Document}, {Key: "$max", Value: bson.D{eq("rev", o.Rev)}}})
	case doBury:
		return s.bury(ctx, o.Death)
	case doExhume:
		return s.exhume(ctx, o)
	case doTakeBack:
		_, err = s.outbox.UpdateOne(ctx, bson.D{eq("seq", o.Seq), eq("status", sent)}, set(bson.D{eq("status", failed)}))
	case doFail:
		fields := bson.D{eq("status", failed), eq("sentAt", o.At)}
		if o.Version != "" {
			fields = append(fields, eq("routingVersion", o.Version))
		}
		_, err = s.outbox.UpdateOne(ctx, bson.D{eq("_id", o.ID), eq("status", pending)}, set(fields))
	case doDropReplays:
		_, err = s.outbox.DeleteMany(ctx, bson.D{
			eq("eventId", o.EventID), eq("status", pending), eq("consumer", consumerOrNull(o.Consumer)),
			eq("generation", bson.D{eq("$gt", 0), eq("$lte", o.Generation)}),
		})
	case doDropByHand:
		_, err = s.outbox.DeleteOne(ctx, bson.D{eq("_id", o.ID), eq("status", pending), eq("partition", nil)})
	default:
		err = errors.New("mongostore: unknown step " + o.Do + ": a later version has written it")
	}
	return typed(err)
}

// older selects the document of an update, unless a later step has updated it.
func (o *op) older() bson.D {
	return bson.D{eq("_id", o.ID), eq("$or", bson.A{bson.D{eq("rev", nil)}, bson.D{eq("rev", bson.D{eq("$lt", o.Rev)})}})}
}

// consumerOrNull is the value of a field that is left out where it is empty.
func consumerOrNull(consumer string) any {
	if consumer == "" {
		return nil
	}
	return consumer
}

// bury writes a dead letter, unless a later state of it is there.
func (s *Store) bury(ctx context.Context, d *deathDoc) error {
	return s.changeDead(ctx, d.EventID, func(event *deadDoc) bool {
		known := event.entry(d.Entry.Consumer)
		if known != nil && known.Rev >= d.Entry.Rev || known == nil && !d.Dies {
			return false
		}
		if known != nil {
			*known = d.Entry
		} else {
			event.Consumers = append(event.Consumers, d.Entry)
		}
		if d.Dies {
			if event.FirstSeenAt.IsZero() {
				event.FirstSeenAt = d.Entry.UpdatedAt
			}
			event.EventType, event.Error, event.LastSeenAt = d.EventType, d.Entry.Message, d.Entry.UpdatedAt
			event.Attempts += d.Attempts
		}
		if d.Payload != nil {
			event.Payload = d.Payload
		}
		return true
	})
}

// exhume removes a dead letter, and the event with its last one.
func (s *Store) exhume(ctx context.Context, o *op) error {
	return s.changeDead(ctx, o.EventID, func(event *deadDoc) bool {
		n := len(event.Consumers)
		event.Consumers = slices.DeleteFunc(event.Consumers, func(e deadEntry) bool { return e.Consumer == o.Consumer && e.Rev < o.Rev })
		return len(event.Consumers) < n
	})
}

// changeDead changes the dead letters of an event, those of other consumers being changed by
// others at the same time.
func (s *Store) changeDead(ctx context.Context, eventID string, change func(event *deadDoc) bool) error {
	for try := range maxTries {
		event, err := findOne[deadDoc](ctx, s.dead, bson.D{eq("_id", eventID)})
		if err != nil {
			return err
		}
		rev := int64(0)
		if event != nil {
			rev = event.Rev
		} else {
			event = &deadDoc{ID: eventID, EventID: eventID}
		}
		if !change(event) {
			return nil
		}
		event.Rev = nextRev(rev)
		won, err := s.writeDead(ctx, event, rev)
		if won || err != nil {
			return err
		}
		if err := pause(ctx, try); err != nil {
			return err
		}
	}
	return fmt.Errorf("dead letters of %s: %w", eventID, errOvertaken)
}

func (s *Store) writeDead(ctx context.Context, event *deadDoc, rev int64) (won bool, err error) {
	same := bson.D{eq("_id", event.ID), eq("rev", rev)}
	switch {
	case len(event.Consumers) == 0 && rev == 0:
		return true, nil
	case len(event.Consumers) == 0:
		gone, err := s.dead.DeleteOne(ctx, same)
		return err == nil && gone.DeletedCount == 1, typed(err)
	}
	event.derive(s.cfg.DeadLetter)
	if rev == 0 {
		_, err := s.dead.InsertOne(ctx, event)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, typed(err)
	}
	replaced, err := s.dead.ReplaceOne(ctx, same, event)
	return err == nil && replaced.MatchedCount == 1, typed(err)
}
