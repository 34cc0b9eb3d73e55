// Package send is a courier in miniature: it reads events from files, signs
// them and posts them to a gateway. It serves to try a gateway out, to load it,
// and to send again what a courier's own client could not.
//
// Sending is safe to repeat: the gateway knows an event by its idempotency key.
package send
