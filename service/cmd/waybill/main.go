// Command waybill works on the dead letters and the outbox of any application of the library.
// See waybill --help.
package main

import "github.com/waybill-go/waybill/service/internal/cli"

func main() { cli.Main(cli.RunWaybill) }
