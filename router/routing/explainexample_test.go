package routing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

const shop = `
routing: 1
consumers: {mail: {}, billing: {}}
events:
  order_placed: {schema: {type: object, properties: {total: {type: integer}}}}
matrix: {order_placed: [mail]}
actions:
  order_placed:
    mail:
      - {when: payload.total > %d, do: thank, with: {channels: [post]}}
      - {do: confirm, with: {channels: [email]}}
`

func parseShop(threshold int) *routing.Table {
	table, err := routing.Parse("routes.yaml", fmt.Appendf(nil, shop, threshold), nil)
	if err != nil {
		panic(err)
	}
	return table
}

func placed(id string, total int) eventing.Envelope {
	return eventing.Envelope{Header: eventing.Header{ID: id, Type: "order_placed", SchemaVersion: 1}, Payload: json.RawMessage(fmt.Sprintf(`{"total": %d}`, total))}
}

func ExampleTable_Explain() {
	x := parseShop(100).Explain(context.Background(), placed("order-1", 120), nil)
	x.Version = "…" // it changes with each change of the file
	_ = x.Write(os.Stdout)
	// Output:
	// order_placed order-1
	// by routes.yaml, version …
	//
	// mail gets it: row order_placed of the matrix, line 6
	//   does thank {channels: [post]}   (line 10)
	//   rules
	//      10  matched      when payload.total > 100 → thank
	//                       payload.total = 120
	//      11  not tried    → confirm
	//
	// billing does not get it: no row of the matrix sends order_placed to it
}

func ExampleDiffer() {
	d := routing.NewDiffer(parseShop(100), parseShop(50), nil)
	for id, total := range []int{20, 60, 80, 120} {
		d.Event(context.Background(), placed(fmt.Sprintf("order-%d", id), total))
	}
	for _, c := range d.Report().Changes {
		first := c.Examples[0]
		fmt.Println(c.Count, c.EventType, c.Consumer, c.Kind)
		fmt.Println(first.EventID, "-", first.Old.Actions[0])
		fmt.Println(first.EventID, "+", first.New.Actions[0])
	}
	// Output:
	// 2 order_placed mail changed
	// order-1 - confirm {channels: [email]}
	// order-1 + thank {channels: [post]}
}
