package mongostore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/waybill-go/waybill/eventing/mongostore"
)

// Not parallel: it listens to the default logger.
func TestMigrateWarnsOfFerretDB(t *testing.T) {
	atomic := openDB(t)
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)

	if err := mongostore.Migrate(t.Context(), atomic); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("a server whose updates are atomic: logged %s", &log)
	}
	if err := mongostore.Migrate(t.Context(), answering(t, bson.D{{Key: "ferretdbVersion", Value: "v1.24.2"}})); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "version=v1.24.2") {
		t.Errorf("logged %q, want one warning", &log)
	}
}

// answering is a database on a server that answers all commands alike, with what the driver needs
// and the extra fields.
func answering(t *testing.T, extra bson.D) *mongo.Database {
	t.Helper()
	answer, err := bson.Marshal(append(bson.D{
		{Key: "ok", Value: 1}, {Key: "isWritablePrimary", Value: true}, {Key: "maxWireVersion", Value: 21},
		{Key: "maxBsonObjectSize", Value: 1 << 24}, {Key: "maxMessageSizeBytes", Value: 1 << 25}, {Key: "maxWriteBatchSize", Value: 1000},
		{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "db.none"}, {Key: "firstBatch", Value: bson.A{}}}},
	}, extra...))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(conn, answer) })
		}
	})
	// With a version of the API, the driver uses OP_MSG from the first message on.
	c, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + listener.Addr().String() + "/?directConnection=true").
		SetServerAPIOptions(options.ServerAPI(options.ServerAPIVersion1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Disconnect(context.WithoutCancel(t.Context()))
		_ = listener.Close()
		serving.Wait()
	})
	return c.Database("db")
}

// serve answers each message: a header of length, ID, ID that is answered and kind of
// message; then flags, and a section with a document.
func serve(conn net.Conn, answer []byte) {
	defer conn.Close()
	for {
		var header [4]uint32
		if binary.Read(conn, binary.LittleEndian, &header) != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(header[0])-16); err != nil {
			return
		}
		const opMsg = 2013
		reply := binary.LittleEndian.AppendUint32(nil, uint32(16+4+1+len(answer)))
		for _, n := range []uint32{1, header[1], opMsg, 0} {
			reply = binary.LittleEndian.AppendUint32(reply, n)
		}
		if _, err := conn.Write(append(append(reply, 0), answer...)); err != nil {
			return
		}
	}
}
