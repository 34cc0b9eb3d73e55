package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
)

// letter is a notification to one recipient through one channel.
type letter struct {
	id           string // the same at each attempt
	eventID      string
	caseID       string
	notification string
	recipient    string
	channel      string
	priority     string
}

// reach says which channels reach whom. Citizens do not have the internal one, and staff have no
// other.
func reach(recipient, channel string) bool {
	return (recipient == "citizen") != (channel == internal)
}

const internal = "internal" // the inbox on an officer's desk

// provider sends letters. It stands for portal, mail server and SMS gateway; what fails is up to
// the switches.
type provider struct {
	*switches

	mu   sync.Mutex
	sent map[string]int // letters by ID: how often they were sent
}

// send returns once the channel has taken the letter. A letter that is sent again has the ID that it
// had: who knows IDs shows it once.
func (p *provider) send(ctx context.Context, l letter) error {
	if err := p.pass(ctx, "channel "+l.channel, l.caseID); err != nil {
		return fmt.Errorf("%s to %s by %s: %w", l.notification, l.recipient, l.channel, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == nil {
		p.sent = map[string]int{}
	}
	p.sent[l.id]++
	return nil
}

// derived makes an ID of what identifies a thing: done again, it is the same thing.
func derived(parts ...string) string {
	b := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // a UUID of version 8, RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
