package pgstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/eventing/pgstore"
)

type OrderPlaced struct {
	Number string `json:"number"`
}

// BEGIN, the order, its event and COMMIT are a single round trip.
func ExampleStore_ExecLater() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://waybill@127.0.0.1:5432/waybill")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store := pgstore.New(pool)
	outbox := eventing.NewOutbox(store, eventing.OutboxConfig{})

	err = outbox.InTx(ctx, func(tx pgx.Tx) error {
		if err := store.ExecLater(ctx, tx, `INSERT INTO orders (number) VALUES ($1)`, "7"); err != nil {
			return err
		}
		return outbox.Append(ctx, tx, eventing.New("order", "7", OrderPlaced{"7"}))
	})
	if err != nil {
		fmt.Println(err) // also if the order was there already
	}
}
