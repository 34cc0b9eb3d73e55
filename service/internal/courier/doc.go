// Package courier holds what the gateway knows of couriers' events: the event
// as it is received and queued, its signature, the rules its body is held to,
// and the documents that tell what became of it.
//
// An event comes in as a signed JSON body. [Keyring.Verify] checks the
// signature on the raw bytes, [Parse] the body; [CanonicalHash] tells two bodies
// apart and [EventID] names the event's envelope.
package courier
