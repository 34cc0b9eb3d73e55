package gateway

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	_ "modernc.org/sqlite" // the driver, for a database that is not durable

	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/intake"
	"github.com/waybill-go/waybill/service/internal/ledger"
	"github.com/waybill-go/waybill/service/internal/store"
)

// commits is how many events are accepted, each in a transaction of its own.
const commits = 25

// committer is a program that accepts events on a store, one after the other, and
// says so after each. Then it does the like on a database that is not durable.
const committer = "commit"

func runCommitter(ctx context.Context) (err error) {
	s, err := store.Open(ctx, os.Getenv("STORE_URL"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Println("safe begin")
	if err := acceptEach(ctx, s, func() { fmt.Println("safe commit") }); err != nil {
		return err
	}
	unsafe, err := sql.Open("sqlite", "file:"+os.Getenv("UNSAFE_STORE")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return err
	}
	defer unsafe.Close()
	if _, err := unsafe.ExecContext(ctx, `CREATE TABLE t (x integer)`); err != nil {
		return err
	}
	fmt.Println("unsafe begin")
	for i := range commits {
		if _, err := unsafe.ExecContext(ctx, `INSERT INTO t VALUES ($1)`, i); err != nil {
			return err
		}
		fmt.Println("unsafe commit")
	}
	return nil
}

// acceptEach has the intake accept events, one after the other.
func acceptEach(ctx context.Context, s *store.Store, accepted func()) error {
	in := intake.New(intake.Config{Store: ledger.New(s, day).Receiver()})
	defer in.Close(ctx)
	for i := range int64(commits) {
		var e courier.Event
		body, _ := event(i, shipmentCount, time.Now())
		if err := json.Unmarshal(body, &e); err != nil {
			return err
		}
		e.ReceivedAt = time.Now()
		payload, err := courier.DecodePayload(e.Payload)
		if err != nil {
			return err
		}
		if _, err := in.Accept(ctx, e, payload, courier.CanonicalHash(body)); err != nil {
			return err
		}
		accepted()
	}
	return nil
}
