// Command gateway takes couriers' events in, processes them and shows what became
// of them. See gateway --help.
package main

import "github.com/waybill-go/waybill/service/internal/cli"

func main() { cli.Main(cli.Run) }
