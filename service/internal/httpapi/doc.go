// Package httpapi is the gateway's HTTP interface: the intake of couriers'
// events, reads for operators, health, and the OpenAPI document.
//
// A request of the intake passes, in this order: method, content type, size,
// signature on the raw bytes, JSON and fields, source. Only then does anything
// reach the [Acceptor], and only what it has stored is answered with 202.
// Everything refused is answered with problem details (RFC 9457) that name the
// fault and the trace id.
package httpapi
