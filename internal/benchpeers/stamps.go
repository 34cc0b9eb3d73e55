package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// stamps are when Redis confirmed each event, by ID, for the first time.
type stamps struct {
	mu sync.Mutex
	at map[string]time.Time
}

// messageID is the stream field in which Watermill's format has the message's ID.
const messageID = "_watermill_message_uuid"

// see is for [tally.each].
func (s *stamps) see(args []any) {
	now := time.Now()
	for i, arg := range args[:len(args)-1] {
		if arg != messageID {
			continue
		}
		switch id := args[i+1].(type) {
		case string:
			s.add(id, now)
		case *string:
			s.add(*id, now)
		}
	}
}

func (s *stamps) add(id string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		s.at = map[string]time.Time{}
	}
	if _, known := s.at[id]; !known {
		s.at[id] = at
	}
}

func (s *stamps) get(id string) (at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok = s.at[id]
	return at, ok
}

// statementCount counts what a pool asks of the server, BEGIN and COMMIT included.
type statementCount struct{ atomic.Int64 }

var (
	_ pgx.QueryTracer = (*statementCount)(nil)
	_ pgx.BatchTracer = (*statementCount)(nil)
)

// TraceQueryStart implements [pgx.QueryTracer].
func (c *statementCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

// TraceQueryEnd implements [pgx.QueryTracer].
func (c *statementCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements [pgx.BatchTracer].
func (c *statementCount) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery implements [pgx.BatchTracer].
func (c *statementCount) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	c.Add(1)
}

// TraceBatchEnd implements [pgx.BatchTracer].
func (c *statementCount) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
