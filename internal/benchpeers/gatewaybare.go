package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing/pgstore"
)

const (
	bareCommand = "gateway-bare"
	bareLedger  = "with-ledger"
	bareCommits = 1 // at a time: more cost it more than they bring
	bareGroup   = 256
)

// bare is the least that takes signed events durably: no check of what is in them, no
// repeats. Concurrent requests share a transaction.
type bare struct {
	pool   *pgxpool.Pool
	ledger bool // it inserts what the gateway inserts, into the same two tables

	mu      sync.Mutex
	waiting []bareRow
	running int
}

type bareRow struct {
	id        uuid.UUID
	payload   string
	committed chan error
}

// runBare is the peer's process.
func runBare(ctx context.Context, args []string, out io.Writer, progress *log.Logger) error {
	dbURL := os.Getenv(appenderURLEnv)
	if dbURL == "" {
		return errors.New(bareCommand + " is a part of gateway, which runs it")
	}
	pool, err := newPool(ctx, dbURL)
	if err != nil {
		return err
	}
	defer pool.Close()
	ledger := slices.Contains(args, bareLedger)
	if !ledger {
		if err := pgstore.Migrate(ctx, pool); err != nil { // for event_outbox
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &bare{pool: pool, ledger: ledger}, ReadHeaderTimeout: 5 * time.Second, ErrorLog: progress}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := json.NewEncoder(out).Encode(map[string]string{"url": "http://" + listener.Addr().String()}); err != nil {
		return err
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements [http.Handler].
func (b *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, max(0, r.ContentLength))
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !signed(r, body) {
		http.Error(w, "the signature does not hold", http.StatusUnauthorized)
		return
	}
	id := uuid.New()
	if err := b.store(bareRow{id: id, payload: bareEnvelope(id, body)}); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte(`{"traceId":"` + id.String() + `"}`))
}

func signed(r *http.Request, body []byte) bool {
	timestamp := r.Header.Get("X-Signature-Timestamp")
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if age := time.Now().Unix() - at; err != nil || age > 300 || age < -300 {
		return false
	}
	signature, err := hex.DecodeString(r.Header.Get("X-Signature"))
	return err == nil && hmac.Equal(signature, signatureOf(timestamp, body))
}

func signatureOf(timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(gatewaySecret))
	mac.Write([]byte(timestamp))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// bareEnvelope is as long as the gateway's envelope of the same event.
func bareEnvelope(id uuid.UUID, body []byte) string {
	const header = `{"event_id":"00000000-0000-0000-0000-000000000000","event_type":"shipment.status.updated","occurred_at":"2026-02-26T12:00:00Z",` +
		`"correlation_id":"0af7651916cd43dd8448eb211c80319c","tenant_id":"","station_id":"","schema_version":1,"aggregate_type":"shipment",` +
		`"aggregate_id":"shp_000000","idempotency_key":"courier-x:evt_0000000000000000","payload":{"traceId":"0af7651916cd43dd8448eb211c80319c",` +
		`"signatureMeta":{"algorithm":"hmac-sha256","timestamp":1772107200,"signature":"0000000000000000000000000000000000000000000000000000000000000000"},` +
		`"receivedAt":"2026-02-26T12:00:01.123456789Z","attempt":1,"body":`
	text := make([]byte, 0, len(header)+len(body)+2)
	text = append(text, header...)
	copy(text[len(`{"event_id":"`):], id.String())
	return string(append(append(text, body...), "}}"...))
}

// store returns when the row's transaction has committed.
func (b *bare) store(row bareRow) error {
	row.committed = make(chan error, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, row)
	start := b.running < bareCommits
	if start {
		b.running++
	}
	b.mu.Unlock()
	if start {
		go b.commit()
	}
	return <-row.committed
}

func (b *bare) commit() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), bareGroup)
		group := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.running--
		}
		b.mu.Unlock()
		if n == 0 {
			return
		}
		err := b.insert(group)
		for _, row := range group {
			row.committed <- err
		}
	}
}

const (
	bareAppend = `
INSERT INTO event_outbox (id, event_id, event_type, payload, ordering_key, partition, created_at)
SELECT id, id, 'shipment.status.updated', payload, key, partition, now() FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[])
	AS row (id, payload, key, partition)`

	bareEnter = `
INSERT INTO courier_ledger (idempotency_key, envelope_id, event_id, event_type, source, shipment_id, occurred_at, received_at, trace_id, body_hash, status,
	first_seen_at, updated_at)
SELECT 'courier-x:' || id, id, 'evt_' || id, 'shipment.status.updated', 'courier-x', key, now(), now(), trace, hash, 'received', now(), now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS row (id, key, trace, hash)`
)

// insert is a transaction: a batch by itself is one.
func (b *bare) insert(group []bareRow) error {
	n := len(group)
	ids, payloads, keys, partitions := make([]string, n), make([]string, n), make([]string, n), make([]int16, n)
	for i, row := range group {
		ids[i], payloads[i], keys[i], partitions[i] = row.id.String(), row.payload, "shipment:shp_"+strconv.Itoa(int(row.id[0])), int16(row.id[1]%32)
	}
	batch := &pgx.Batch{}
	if b.ledger {
		traces, hashes := make([]string, n), make([]string, n)
		for i := range group {
			traces[i] = strings.ReplaceAll(ids[i], "-", "")
			hashes[i] = traces[i] + traces[i] // as long as one
		}
		batch.Queue(bareEnter, ids, keys, traces, hashes)
	}
	batch.Queue(bareAppend, ids, payloads, keys, partitions)
	if err := b.pool.SendBatch(context.Background(), batch).Close(); err != nil {
		return fmt.Errorf("insert: %w", err)
	}
	return nil
}
